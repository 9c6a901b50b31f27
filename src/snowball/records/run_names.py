"""The hash that ends a run's name: of all settings but those that were added since and change nothing.

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
}
"""Settings that were added after runs had names, each with the value that stands for how it was before; a value here
never changes, even where the default does."""


def hash_settings(settings: Mapping[str, Any]) -> str:
    """The hash of a run's settings."""
    canonical = json.dumps(drop_added_settings(settings), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:HASH_CHARS]


def drop_added_settings(settings: Any) -> Any:
    """Drop added settings that have their former value, wherever they stand: what is left has the names of before."""
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
