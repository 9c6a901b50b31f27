"""Presets: settings in TOML files, shipped with the package or the user's own."""

from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path

from snowball.errors import SettingError
from snowball.registry import suggest_name
from snowball.settings import Choice, Settings, apply_changes, flatten_settings, is_file, parse_toml, read_toml_text

PRESETS = resources.files("snowball").joinpath("presets")

MAX_LAYERS = 16
"""Most files that extend each other."""

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
    settings, *extensions = reversed(list(read_layers(source)))
    for own in extensions:
        choices_first = sorted(flatten_settings(own).items(), key=lambda change: change[0] not in choices)
        settings = apply_changes(settings, choices_first, choices)
    return settings


def read_layers(source: str | Path) -> Iterator[Settings]:
    """Yield the settings of a preset or a TOML file, then those of the one that it extends, and so on."""
    shipped, following = describe_presets(), source
    for _ in range(MAX_LAYERS):
        own = read_layer(following, shipped)
        extended = own.pop("extends", None)
        yield own
        if extended is None:
            return
        if not isinstance(extended, str):
            raise SettingError(f"extends = {extended!r} in {following} is neither the name of a preset nor a file")
        following = extended if extended in shipped else Path(following).parent / extended
    raise SettingError(f"the settings of {source} are nested too deeply, or it extends itself")


def read_layer(source: str | Path, shipped: Collection[str]) -> Settings:
    """Read the settings of one preset or TOML file, with its `extends`."""
    name = str(source)
    file = PRESETS.joinpath(f"{name}.toml") if name in shipped else Path(source)
    if not is_file(file):
        raise SettingError(f"{name!r} is neither a preset nor a file{suggest_name(name, shipped)}")
    return parse_toml(read_toml_text(file, source), source)
