"""Presets: settings in TOML files, shipped or the user's, from which experiments are made."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Self

from snowball.defenses import DEFENSES
from snowball.defenses.build import defense_of
from snowball.errors import SettingError
from snowball.registry import suggest_name
from snowball.settings import Settings, flat, layer, override, parse_assignment, require
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
        settings = read(source)
        peers = settings.pop("peers", {})
        check_peers(peers)
        return cls(settings, peers)

    def experiment(self, assignments: Sequence[str]) -> Experiment:
        """The experiment with assignments over the settings."""
        return Experiment.parse(override(with_peer(*self, assignments), assignments, CHOICES))


def check_peers(peers: Any) -> None:
    """Refuse settings of peers that would be refused once they are chosen."""
    if not isinstance(peers, dict):
        raise SettingError(f"peers = {peers!r} is a section of sections, one a defense, such as peers.krum")
    for name, own in peers.items():
        if not isinstance(own, dict):
            raise SettingError(f"peers.{name} = {own!r} is a section of a defense's settings")
        defense_of(f"peers.{name}", require("peers", name, DEFENSES), own)


def with_peer(settings: Settings, peers: Settings, assignments: Sequence[str]) -> Settings:
    """Settings with the section of the peer that assignments choose, if there is one, for their defense."""
    chosen = dict(map(parse_assignment, assignments)).get("defense.name")
    if not isinstance(chosen, str) or chosen not in peers:
        return settings
    return {**settings, "defense": {"name": chosen, **peers[chosen]}}


def read(source: str | Path) -> Settings:
    """The settings in a preset or a TOML file, over those of the one that it extends; unchecked."""
    name = str(source)
    file = PRESETS.joinpath(f"{name}.toml") if name in presets() else Path(source)
    if not file.is_file():
        raise SettingError(f"{name!r} is neither a preset nor a file{suggest_name(name, presets())}")
    try:
        own = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors start a file with a mark
    except ValueError as error:  # no TOML, no text, or a number of thousands of digits
        raise SettingError(f"{source} is not a TOML file: {error}") from error
    if (extended := own.pop("extends", None)) is None:
        return own
    if not isinstance(extended, str):
        raise SettingError(f"extends = {extended!r} in {source} is no preset's name and no file's")
    former = read(extended if extended in presets() else Path(source).parent / extended)
    choices_first = sorted(flat(own).items(), key=lambda change: change[0] not in CHOICES)
    return layer(former, choices_first, CHOICES)


PRESETS = resources.files("snowball").joinpath("presets")
FAMILIES = ("", "cpu/", "paper/")
"""The folders that presets are in: their names start with them."""


def presets() -> dict[str, str]:
    """What each shipped preset is: the first line of its file."""
    found = {}
    for family in FAMILIES:
        files = sorted((file.name, file) for file in PRESETS.joinpath(family).iterdir() if file.name.endswith(".toml"))
        for name, file in files:
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            found[f"{family}{name.removesuffix('.toml')}"] = first.lstrip("# ")
    return found
