"""Experiments from presets: TOML files of settings, shipped with the package or the user's own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch import nn

from snowball.data import Dataset
from snowball.data.own import OwnData, Samples, wrap_data
from snowball.defenses import DEFENSES
from snowball.defenses.build import make_defense
from snowball.errors import SettingError
from snowball.models.own import OwnModel, copy_own_model
from snowball.records.presets import read_preset
from snowball.registry import OWN_NAME
from snowball.rng import stream
from snowball.settings import (
    Settings,
    apply_changes,
    flatten_settings,
    parse_assignment,
    refuse_huge_integers,
    require_known,
)
from snowball.sim.experiment import CHOICES, Experiment

Source = str | Path | Experiment
"""The name of a preset, the path of a TOML file, or an experiment."""

Overrides = Mapping[str, Any] | Sequence[str]
"""Settings to change, by path: `{"defense.name": "krum"}`; or as on the command line: `["defense.name=krum"]`."""

Changes = Sequence[tuple[str, Any]]
"""Paths of settings and their new values, in the order in which they are applied."""


def load_experiment(
    source: Source,
    overrides: Overrides = (),
    *,
    data: OwnData | Samples | None = None,
    model: OwnModel | None = None,
) -> Experiment:
    """Build the experiment of a preset, a TOML file or another experiment, with some settings changed.

    If an override chooses the defense NAME, a section `peers.NAME` of the preset replaces its section `defense`. An
    experiment has no peers: another defense then starts from its defaults.

    Args:
        source: a preset's name, such as `"demo"`, the path of a TOML file, or an experiment.
        overrides: settings to change, such as `{"defense.name": "krum"}`.
        data: data of your own instead of the data set that the settings name: a torch Dataset, a pair
            (inputs, labels), or an `OwnData` with test samples and client ids.
        model: a model of your own: a module, whose weights are the first global model, or a function without
            arguments that makes one, with weights drawn by the experiment's seed.
    """
    own_data = None if data is None else wrap_data(data)
    with explain_recursion(source):
        changes = parse_overrides(overrides)
        if isinstance(source, Experiment) and not changes and data is None and model is None:
            return source
        experiment = Preset.read(source).build_experiment([*choose_own(own_data, model, changes), *changes])
    former_data, former_model = keep_own(source, experiment, data is None, model is None)
    return experiment.with_own(
        former_data if own_data is None else own_data.build_dataset(experiment.seed),
        former_model if model is None else copy_own_model(model, stream(experiment.seed, "model")),
    )


def choose_own(data: OwnData | None, model: OwnModel | None, changes: Changes) -> Changes:
    """Return the changes that choose data and a model of the caller's own, and the clients of the data."""
    assigned = dict(changes)
    chosen: Settings = {
        f"{section}.name": OWN_NAME for section, own in (("data", data), ("model", model)) if own is not None
    }
    for name in chosen.keys() & assigned:
        section = name.partition(".")[0]
        raise SettingError(f"{name} = {assigned[name]!r} contradicts {section}=...: give one of them")
    clients = data and data.count_clients()
    if clients and assigned.get("data.partition", "natural") == "natural":
        chosen |= {"data.partition": "natural", "data.clients": clients}
    return list(chosen.items())


def keep_own(
    source: Source, experiment: Experiment, keep_data: bool, keep_model: bool
) -> tuple[Dataset | None, nn.Module | None]:
    """Return the own data and model of an experiment that is changed, unless other ones replace them."""
    if not isinstance(source, Experiment):
        return None, None
    data = source.own_data if keep_data and experiment.data.name == OWN_NAME else None
    model = source.own_model if keep_model and experiment.model.name == OWN_NAME else None
    if experiment.seed != source.seed and (data is not None or model is not None):
        reason = f"an experiment with own data or an own model, which its seed {source.seed} drew"
        raise SettingError(f"seed = {experiment.seed} cannot change {reason}: give data= and model= with the new seed")
    return data, model


@contextmanager
def explain_recursion(source: Source) -> Iterator[None]:
    """Turn the error about settings without an end into one sentence."""
    try:
        yield
    except RecursionError as error:
        raise SettingError(f"the settings of {source} are nested too deeply, or it extends itself") from error


class Preset(NamedTuple):
    """Settings of a source, and the checked settings of its peers; read it once to build many experiments."""

    settings: Settings
    peers: Settings

    @classmethod
    def read(cls, source: Source) -> Self:
        """Read a preset, a TOML file or an experiment."""
        if isinstance(source, Experiment):
            return cls(source.dump_settings(), {})
        if not isinstance(source, str | Path):
            raise SettingError(f"expected a preset's name, a TOML file or an experiment, got {source!r}")
        settings = read_preset(source, CHOICES)
        peers = settings.pop("peers", {})
        check_peers(peers)
        return cls(settings, peers)

    def replace_peers(self, peers: Settings) -> Self:
        """Return the preset with other settings of defenses, and those of none: one must be chosen."""
        check_peers(peers)
        return type(self)({name: value for name, value in self.settings.items() if name != "defense"}, peers)

    def build_experiment(self, changes: Changes) -> Experiment:
        """Build the experiment of these settings with some of them changed."""
        applied = [*forget_start(changes), *changes]
        return Experiment.parse(apply_changes(apply_peer(*self, changes), applied, CHOICES))


def forget_start(changes: Changes) -> Changes:
    """Return the change that forgets the SHA-256 of the former start, if the changes choose another start."""
    return [("model.start_sha256", None)] if "model.start" in dict(changes) else []


def parse_overrides(overrides: Overrides) -> Changes:
    """Check the paths of overrides and return the changes; in a mapping, choices come first, whatever its order."""
    if isinstance(overrides, Mapping):
        changes = {check_path(path): to_plain(value) for path, value in flatten_settings(overrides).items()}
        for path, value in changes.items():
            refuse_huge_integers(value, path)
        return sorted(changes.items(), key=lambda change: change[0] not in CHOICES)
    if not isinstance(overrides, list | tuple):
        example = "such as {'defense.name': 'krum'}"
        raise SettingError(f"overrides must map settings to values, {example}, got {overrides!r}")
    return [parse_assignment(each) for each in overrides]


def check_path(path: str) -> str:
    """Return the path of a setting if it has the form `a.b`."""
    if not all(part.strip() for part in path.split(".")):
        raise SettingError(f"expected the path of a setting, such as 'defense.name', got {path!r}")
    return path


def to_plain(value: Any) -> Any:
    """Return numbers and arrays of NumPy as Python's own, and everything else as it is."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def check_peers(peers: Any) -> None:
    """Refuse settings of peers that would be refused when a peer is chosen."""
    if not isinstance(peers, dict):
        raise SettingError(f"peers must hold one section per defense, such as peers.krum, got {peers!r}")
    for name, own in peers.items():
        if not isinstance(own, dict):
            raise SettingError(f"peers.{name} must be a section with the settings of a defense, got {own!r}")
        make_defense(f"peers.{name}", require_known("peers", name, DEFENSES), own)


def apply_peer(settings: Settings, peers: Settings, changes: Changes) -> Settings:
    """Replace the defense by the peer that the changes choose, if there is a section for it."""
    chosen = dict(changes).get("defense.name")
    if not isinstance(chosen, str) or chosen not in peers:
        return settings
    return {**settings, "defense": {"name": chosen, **peers[chosen]}}
