"""The hash that ends a run's name: of all settings except those that were added later and have their former value.

The simulator names folders by it, and the report checks by it that a folder holds the run of its name.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

HASH_CHARS = 8
"""Characters of the hash in a name."""

ADDED_SETTINGS: dict[str, Any] = {
    "gap_from": 3,
    "gap_to": 15,
    "gap_rule": "first",
    "cpu_threads": 1,
    "remember": 512,
    "tokeniser": "words",
    "timeout": 600,
    "faults": {"dropped": 0, "slow": 0, "duplicated": 0, "corrupted": 0, "killed": 0},
    "before": [],
    "start": None,
    "start_sha256": None,
    "in_rounds": [],
}
"""Settings that were added after the first runs were named, each with the value that means the former behaviour.

A value here never changes, even if the default does."""


def hash_settings(settings: Mapping[str, Any]) -> str:
    """Hash a run's settings."""
    canonical = json.dumps(drop_added_settings(settings), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:HASH_CHARS]


def drop_added_settings(settings: Any) -> Any:
    """Drop added settings that have their former value, at any depth, so that names of earlier runs stay valid."""
    if isinstance(settings, list):
        return [drop_added_settings(entry) for entry in settings]
    if not isinstance(settings, Mapping):
        return settings
    kept = {
        name: value
        for name, value in settings.items()
        if not (name in ADDED_SETTINGS and value == ADDED_SETTINGS[name])
    }
    return {name: drop_added_settings(value) for name, value in kept.items()}
