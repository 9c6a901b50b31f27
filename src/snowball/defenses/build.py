"""Builds defenses from plain settings, such as TOML, JSON and an NVFlare job hold."""

import inspect
from collections.abc import Collection

from snowball.defenses import DEFENSES, Defense
from snowball.settings import TOLD, Settings, complete, holds_parts, own_fields


def defense_of(path: str, name: str, own: Settings) -> Defense:
    """A defense by its name in the table, from those of its settings that are not the default."""
    return assemble(name, complete(path, name, DEFENSES[name], own, DEFENSES))


def assemble(name: str, own: Settings, malicious: Collection[str] = ()) -> Defense:
    """A defense of all of its settings, and the defenses that it is made of; only Ideal is told who is malicious."""
    make = DEFENSES[name]
    settings = dict(own)
    for field, (kind, _) in own_fields(make).items():
        if holds_parts(kind):
            settings[field] = tuple(assemble(part.pop("name"), part, malicious) for part in map(dict, own[field]))
    told = {TOLD: malicious} if TOLD in inspect.signature(make).parameters else {}
    defense: Defense = make(**settings, **told)
    return defense
