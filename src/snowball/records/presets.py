"""Presets: settings in TOML files, shipped with the package or the user's own."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from snowball.errors import SettingError
from snowball.registry import suggest_name
from snowball.settings import Choice, Settings, apply_changes, flatten_settings, refuse_huge_integers

PRESETS = resources.files("snowball").joinpath("presets")

FAMILIES = ("", "cpu/", "paper/")
"""The folders of the shipped presets, whose names start with them."""


def describe_presets() -> dict[str, str]:
    """Return the first line of each shipped preset, which says what it is, by name."""
    found = {}
    for family in FAMILIES:
        files = sorted((file.name, file) for file in PRESETS.joinpath(family).iterdir() if file.name.endswith(".toml"))
        for name, file in files:
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            found[f"{family}{name.removesuffix('.toml')}"] = first.lstrip("# ")
    return found


def read_preset(source: str | Path, choices: Mapping[str, type[Choice]]) -> Settings:
    """Read the settings of a preset or a TOML file, over those of the one that it extends; they are not checked.

    A preset that changes one of the `choices` drops the settings of the former choice that the new one does not have.
    """
    name, shipped = str(source), describe_presets()
    file = PRESETS.joinpath(f"{name}.toml") if name in shipped else Path(source)
    if not file.is_file():
        raise SettingError(f"{name!r} is neither a preset nor a file{suggest_name(name, shipped)}")
    try:
        own = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors start a file with a byte order mark
    except ValueError as error:  # not TOML, not text, or a number with thousands of digits
        raise SettingError(f"{source} is not a TOML file: {error}") from error
    refuse_huge_integers(own, str(source))
    if (extended := own.pop("extends", None)) is None:
        return own
    if not isinstance(extended, str):
        raise SettingError(f"extends = {extended!r} in {source} is neither the name of a preset nor a file")
    former = read_preset(extended if extended in shipped else Path(source).parent / extended, choices)
    choices_first = sorted(flatten_settings(own).items(), key=lambda change: change[0] not in choices)
    return apply_changes(former, choices_first, choices)
