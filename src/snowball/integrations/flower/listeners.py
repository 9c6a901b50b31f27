"""Reads a guard's listeners from a Flower app's configuration, which holds single values under dotted names."""

from collections.abc import Mapping
from typing import Any

PREFIX = "listeners."


def read_listeners(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the listeners of a run's configuration, e.g. of `listeners.webhook.url`, as `Guarded` takes them."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in config.items():
        if key.startswith(PREFIX):
            name, _, setting = key.removeprefix(PREFIX).rpartition(".")
            found.setdefault(name, {})[setting] = value
    return found
