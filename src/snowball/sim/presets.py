"""Experiments from presets: TOML files of settings, shipped with the package or the user's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from snowball.defenses import DEFENSES
from snowball.defenses.build import make_defense
from snowball.errors import SettingError
from snowball.records.presets import read_preset
from snowball.settings import Settings, apply_assignments, parse_assignment, require_known
from snowball.sim.experiment import CHOICES, Experiment


def load_experiment(source: str | Path, assignments: Sequence[str] = ()) -> Experiment:
    """Build the experiment of a preset or a TOML file, changed by assignments of the form `a.b=c`.

    If an assignment chooses the defense NAME, a section `peers.NAME` replaces the section `defense`.
    """
    try:
        return Preset.read(source).build_experiment(assignments)
    except RecursionError as error:
        raise SettingError(f"the settings of {source} are nested too deeply, or it extends itself") from error


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
