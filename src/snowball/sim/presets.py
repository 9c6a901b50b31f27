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


def load(source: str | Path, assignments: Sequence[str] = ()) -> Experiment:
    """The experiment of a preset or a TOML file, with `a.b=c` assignments over it.

    A section `peers.NAME` stands in for `defense` where an assignment chooses the defense NAME.
    """
    try:
        return Preset.open(source).experiment(assignments)
    except RecursionError as error:
        raise SettingError(f"the settings of {source} are nested too deeply, or extend themselves") from error


class Preset(NamedTuple):
    """The settings of a preset or a file, and those of its peers, checked: what `load` takes longest for."""

    settings: Settings
    peers: Settings

    @classmethod
    def open(cls, source: str | Path) -> Self:
        """Read a preset or a TOML file."""
        settings = read_preset(source, CHOICES)
        peers = settings.pop("peers", {})
        check_peers(peers)
        return cls(settings, peers)

    def experiment(self, assignments: Sequence[str]) -> Experiment:
        """The experiment with assignments over the settings."""
        return Experiment.parse(apply_assignments(with_peer(*self, assignments), assignments, CHOICES))


def check_peers(peers: Any) -> None:
    """Refuse settings of peers that would be refused once they are chosen."""
    if not isinstance(peers, dict):
        raise SettingError(f"peers = {peers!r} is a section of sections, one a defense, such as peers.krum")
    for name, own in peers.items():
        if not isinstance(own, dict):
            raise SettingError(f"peers.{name} = {own!r} is a section of a defense's settings")
        make_defense(f"peers.{name}", require_known("peers", name, DEFENSES), own)


def with_peer(settings: Settings, peers: Settings, assignments: Sequence[str]) -> Settings:
    """Settings with the section of the peer that assignments choose, if there is one, for their defense."""
    chosen = dict(map(parse_assignment, assignments)).get("defense.name")
    if not isinstance(chosen, str) or chosen not in peers:
        return settings
    return {**settings, "defense": {"name": chosen, **peers[chosen]}}
