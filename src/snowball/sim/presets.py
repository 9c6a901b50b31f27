"""Experiments from presets: TOML files of settings, shipped with the package or the user's own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from snowball.defenses import DEFENSES
from snowball.defenses.build import make_defense
from snowball.errors import SettingError
from snowball.records.presets import read_preset
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


def load_experiment(source: Source, overrides: Overrides = ()) -> Experiment:
    """Build the experiment of a preset, a TOML file or another experiment, with some settings changed.

    If an override chooses the defense NAME, a section `peers.NAME` of the preset replaces its section `defense`. An
    experiment has no peers: another defense then starts from its defaults.
    """
    with explain_recursion(source):
        changes = parse_overrides(overrides)
        if isinstance(source, Experiment) and not changes:
            return source
        return Preset.read(source).build_experiment(changes)


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

    def build_experiment(self, changes: Changes) -> Experiment:
        """Build the experiment of these settings with some of them changed."""
        return Experiment.parse(apply_changes(apply_peer(*self, changes), changes, CHOICES))


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
