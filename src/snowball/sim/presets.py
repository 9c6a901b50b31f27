"""Experiments from presets: TOML files of settings, shipped with the package or the user's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from snowball.data.own import OwnData, Source, wrap_data
from snowball.defenses import DEFENSES
from snowball.defenses.build import make_defense
from snowball.errors import SettingError
from snowball.models.own import OwnModel, copy_own_model
from snowball.records.presets import read_preset
from snowball.registry import OWN_NAME
from snowball.rng import stream
from snowball.settings import Settings, apply_assignments, parse_assignment, require_known
from snowball.sim.experiment import CHOICES, Experiment


def load_experiment(
    source: str | Path,
    assignments: Sequence[str] = (),
    *,
    data: OwnData | Source | None = None,
    model: OwnModel | None = None,
) -> Experiment:
    """Build the experiment of a preset or a TOML file, changed by assignments of the form `a.b=c`.

    If an assignment chooses the defense NAME, a section `peers.NAME` replaces the section `defense`.

    Args:
        source: a preset's name, such as `"demo"`, or the path of a TOML file.
        assignments: settings to change, each written `a.b=c`, such as `"defense.name=krum"`.
        data: data of your own instead of the data set that the settings name: a torch Dataset, a pair
            (inputs, labels), or an `OwnData` with test samples and client ids.
        model: a model of your own: a module, whose weights are the first global model, or a function without
            arguments that makes one, with weights drawn by the experiment's seed.
    """
    own_data = None if data is None else wrap_data(data)
    try:
        chosen = choose_own(own_data, model, assignments)
        experiment = Preset.read(source).build_experiment([*chosen, *assignments])
    except RecursionError as error:
        raise SettingError(f"the settings of {source} are nested too deeply, or it extends itself") from error
    return experiment.with_own(
        None if own_data is None else own_data.build_dataset(experiment.seed),
        None if model is None else copy_own_model(model, stream(experiment.seed, "model")),
    )


def choose_own(data: OwnData | None, model: OwnModel | None, assignments: Sequence[str]) -> list[str]:
    """Return the assignments that choose data and a model of the caller's own, and the clients of the data."""
    assigned = dict(map(parse_assignment, assignments))
    chosen = {f"{section}.name": OWN_NAME for section, own in (("data", data), ("model", model)) if own is not None}
    for name in chosen.keys() & assigned:
        section = name.partition(".")[0]
        raise SettingError(f"{name} = {assigned[name]!r} contradicts {section}=...: give one of them")
    clients = data and data.count_clients()
    if clients and assigned.get("data.partition", "natural") == "natural":
        chosen |= {"data.partition": "natural", "data.clients": str(clients)}
    return [f"{name}={value}" for name, value in chosen.items()]


class Preset(NamedTuple):
    """Settings of a preset or a file, and the checked settings of its peers; read it once to build many experiments."""

    settings: Settings
    peers: Settings

    @classmethod
    def read(cls, source: str | Path) -> Self:
        """Read a preset or a TOML file."""
        settings = read_preset(source, CHOICES)
        peers = settings.pop("peers", {})
        check_peers(peers)
        return cls(settings, peers)

    def build_experiment(self, assignments: Sequence[str]) -> Experiment:
        """Build the experiment of these settings, changed by assignments."""
        return Experiment.parse(apply_assignments(apply_peer(*self, assignments), assignments, CHOICES))


def check_peers(peers: Any) -> None:
    """Refuse settings of peers that would be refused when a peer is chosen."""
    if not isinstance(peers, dict):
        raise SettingError(f"peers must hold one section per defense, such as peers.krum, got {peers!r}")
    for name, own in peers.items():
        if not isinstance(own, dict):
            raise SettingError(f"peers.{name} must be a section with the settings of a defense, got {own!r}")
        make_defense(f"peers.{name}", require_known("peers", name, DEFENSES), own)


def apply_peer(settings: Settings, peers: Settings, assignments: Sequence[str]) -> Settings:
    """Replace the defense by the peer that assignments choose, if there is a section for it."""
    chosen = dict(map(parse_assignment, assignments)).get("defense.name")
    if not isinstance(chosen, str) or chosen not in peers:
        return settings
    return {**settings, "defense": {"name": chosen, **peers[chosen]}}
