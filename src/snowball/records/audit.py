"""The audit of a federation: a line of JSON a round, which says who was asked, who answered, who was left out, and why.

round, time               from 1; when the round was judged, UTC
mode                      "enforce" or "monitor"
outcome, reason           "aggregated", or "kept" and why the global model stays as it was; a monitored round that the
                          defense could not judge is aggregated all the same, and has a reason too
asked, answered, silent   client ids; `asked` is null where nobody knows
dropped                   {client, reason, detail} of each reply that was not judged; reasons are `REASONS`
elected, left_out         client ids: what the defense decided on those that were judged
averaged                  client ids that went into the model: the elected, or all judged in monitor mode
facts                     the defense's evidence: a number, a number a judged client by id, or a text; `charge` is the
                          text that says what those left out are accused of
model_before, model_after sha256 of the global model's tensors
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records.files import conform, loads, read_lines

Entry = dict[str, Any]
"""One line of an audit."""

REASONS = {
    "error": "the client failed, or its answer could not be read",
    "not-asked": "the client was not asked",
    "duplicate": "the client had answered already",
    "names": "its tensors are not the model's",
    "shape": "a tensor has another shape than the model's",
    "dtype": "a tensor holds other numbers than the model's, or none",
    "not-finite": "a tensor holds NaN or infinite numbers",
    "range": "a counter leaps, a variance is negative, or a statistic is far off",
    "norm": "the update is absurdly long",
    "examples": "the number of examples cannot be, or is above the bound",
}
"""Why a reply is dropped."""

LAST_ROUND = 1 << 53
"""Whole numbers up to here are the same everywhere."""


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _are_dropped(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_dropped, value))


def _is_dropped(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("client", "reason", "detail"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "round": lambda value: type(value) is int and 1 <= value <= LAST_ROUND,
    "time": _is_text,
    "mode": lambda value: value in ("enforce", "monitor"),
    "outcome": lambda value: value in ("aggregated", "kept"),
    "reason": lambda value: value is None or isinstance(value, str),
    "asked": lambda value: value is None or _are_names(value),
    "answered": _are_names,
    "silent": _are_names,
    "dropped": _are_dropped,
    "elected": _are_names,
    "left_out": _are_names,
    "averaged": _are_names,
    "facts": lambda value: isinstance(value, dict),
    "model_before": _is_text,
    "model_after": _is_text,
}
"""What an entry holds, and the check of each."""


def read_audit(path: str | Path) -> list[Entry]:
    """The rounds of an audit, without a last line that a crash or a full disk tore."""
    if not Path(path).is_file():
        raise RunError(f"there is no audit in {path}: it is no file")
    lines = read_lines(Path(path))
    return [conform(loads(line, place), FIELDS, f"{place} is not a round of an audit") for line, place in lines]
