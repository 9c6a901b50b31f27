"""Builds defenses from plain settings, as they come from TOML, JSON or an NVFlare job."""

import inspect
from collections.abc import Collection, Sequence
from typing import Any

from snowball.defenses import DEFENSES, MIXINGS, Before, Defense, Mixing
from snowball.settings import (
    MALICIOUS_FIELD,
    Settings,
    collect_fields,
    complete_part,
    complete_settings,
    ensure_list,
    holds_parts,
)


def make_defense(path: str, name: str, own: Settings) -> Defense:
    """Build a defense from its name and settings; omitted settings take their defaults."""
    before = complete_mixings(f"{path}.before", own.get("before", ()))
    rest = {setting: value for setting, value in own.items() if setting != "before"}
    return assemble_defense(name, complete_settings(path, name, DEFENSES[name], rest, DEFENSES), before=before)


def assemble_defense(
    name: str, own: Settings, malicious: Collection[str] = (), before: Sequence[Settings] = ()
) -> Defense:
    """Build a defense, its members and what goes before it; only `Ideal` learns who is malicious."""
    make = DEFENSES[name]
    settings = dict(own)
    for field, (kind, _) in collect_fields(make).items():
        if holds_parts(kind):
            settings[field] = tuple(
                assemble_defense(part.pop("name"), part, malicious) for part in map(dict, own[field])
            )
    told = {MALICIOUS_FIELD: malicious} if MALICIOUS_FIELD in inspect.signature(make).parameters else {}
    defense: Defense = make(**settings, **told)
    return Before(defense, tuple(assemble_mixing(**part) for part in before)) if before else defense


def complete_mixings(path: str, mixings: Any) -> tuple[Settings, ...]:
    """Complete what goes before a defense: a name, a section with a name, a list of these, or "none"."""
    if mixings == "none":
        return ()
    return tuple(complete_part(path, mixing, MIXINGS) for mixing in ensure_list(mixings))


def assemble_mixing(name: str, **own: Any) -> Mixing:
    """Build a mixing from its name and complete settings."""
    return MIXINGS[name](**own)
