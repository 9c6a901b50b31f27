"""Under which defense, settings, version and mode the rounds of an audit were judged, and when that changed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from snowball.records.audit import AuditEntry
from snowball.records.text import escape_text


@dataclass(frozen=True)
class Setup:
    """Rounds in a row that were judged in the same way; `round` is the first of them."""

    round: int
    defense: str
    settings: dict[str, Any]
    version: str
    mode: str


def list_setups(entries: Iterable[AuditEntry]) -> list[Setup]:
    """Return the setups of an audit, in order."""
    found: list[Setup] = []
    for entry in entries:
        own = entry["defense"], entry["settings"], entry["version"], entry["mode"]
        if not found or own != (found[-1].defense, found[-1].settings, found[-1].version, found[-1].mode):
            found.append(Setup(entry["round"], *own))
    return found


def describe_setup(setup: Setup) -> str:
    """Name the defense, the version and the mode."""
    if not setup.defense:
        return f"a defense that this audit does not name, mode {setup.mode}"
    return f"{escape_text(setup.defense)}, version {escape_text(setup.version)}, mode {setup.mode}"


def describe_changes(setups: Sequence[Setup]) -> list[str]:
    """Say what changed during the audit, and from which round on."""
    return [f"from round {later.round} on: {_describe_change(earlier, later)}" for earlier, later in pairwise(setups)]


def _describe_change(earlier: Setup, later: Setup) -> str:
    if earlier.defense != later.defense:
        parts = [escape_text(later.defense) or "a defense that is not named"]
    else:
        names = [name for name in {**earlier.settings, **later.settings} if _differs(name, earlier, later)]
        parts = [f"{escape_text(name)} = {write_setting(later.settings.get(name))}" for name in names]
    parts += [f"version {escape_text(later.version)}"] if earlier.version != later.version and later.version else []
    parts += [f"mode {later.mode}"] if earlier.mode != later.mode else []
    return ", ".join(parts)


def _differs(name: str, earlier: Setup, later: Setup) -> bool:
    absent = object()
    return bool(earlier.settings.get(name, absent) != later.settings.get(name, absent))


def write_setting(value: Any) -> str:
    """Write the value of a setting on one line."""
    return escape_text(value if isinstance(value, str) else json.dumps(value))
