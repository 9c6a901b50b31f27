"""Entries of an audit, and events about them."""

from collections.abc import Iterable
from typing import Any

from snowball.guard.alerts import Event


def make_entry(number: int = 1, **changes: Any) -> Any:
    """Return an entry of a round that nobody has a part in, but for these changes."""
    entry: dict[str, Any] = {
        "round": number, "time": "2026-01-01T00:00:00+00:00", "version": "0.1.0", "defense": "fedavg", "settings": {},
        "mode": "enforce", "outcome": "aggregated", "reason": None, "asked": None, "answered": [], "silent": [],
        "dropped": [], "elected": [], "left_out": [], "suspects": [], "clarity": None, "averaged": [], "shares": {},
        "decisions": [], "ids": {}, "facts": {}, "seconds": 0.25, "model_before": "",
    }  # fmt: skip
    return entry | changes


def drop(client: str, reason: str = "not-finite") -> dict[str, str]:
    """Return a dropped reply."""
    return {"client": client, "reason": reason, "detail": "'w' holds NaN"}


def accuse(number: int, suspects: Iterable[str] = (), elected: Iterable[str] = (), **changes: Any) -> Any:
    """Return an entry of a round with these suspects."""
    accused, others = list(suspects), list(elected)
    return make_entry(
        number,
        answered=sorted([*accused, *others]),
        left_out=accused,
        suspects=accused,
        elected=others,
        averaged=others,
        **changes,
    )


def make_event(kind: Any = "kept", number: int = 1, client: str | None = None, **changes: Any) -> Event:
    """Return an event of a kind."""
    return Event(kind, number, client, f"Round {number}: it is {kind}", make_entry(number, **changes))
