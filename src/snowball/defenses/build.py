"""Builds defenses from plain settings, as they come from TOML, JSON or an NVFlare job."""

import inspect
from collections.abc import Collection

from snowball.defenses import DEFENSES, Defense
from snowball.settings import MALICIOUS_FIELD, Settings, collect_fields, complete_settings, holds_parts


def make_defense(path: str, name: str, own: Settings) -> Defense:
    """Build a defense from its name and settings; omitted settings take their defaults."""
    return assemble_defense(name, complete_settings(path, name, DEFENSES[name], own, DEFENSES))


def assemble_defense(name: str, own: Settings, malicious: Collection[str] = ()) -> Defense:
    """Build a defense and its members from complete settings; only `Ideal` learns who is malicious."""
    make = DEFENSES[name]
    settings = dict(own)
    for field, (kind, _) in collect_fields(make).items():
        if holds_parts(kind):
            settings[field] = tuple(
                assemble_defense(part.pop("name"), part, malicious) for part in map(dict, own[field])
            )
    told = {MALICIOUS_FIELD: malicious} if MALICIOUS_FIELD in inspect.signature(make).parameters else {}
    defense: Defense = make(**settings, **told)
    return defense
