"""The state of a guard and its file: safetensors and JSON, nothing is unpickled.

What a defense remembers is measured in its own way, so no other defense can use it. Round, seed and the hashes of the
last models belong to the guard and survive a change of the defense.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from snowball.defenses import Defense
from snowball.defenses.base import check_state
from snowball.errors import RunError
from snowball.guard.alerts.events import Streaks, read_streaks
from snowball.guard.audit_log import describe_settings
from snowball.layout import Layout
from snowball.records.audit import MAX_ROUND, is_sha256
from snowball.records.files import replace_non_finite
from snowball.records.sealed import read_sealed, write_sealed

MAX_SHOWN_CHARS = 60

MAX_SEED_BITS = 1024
"""Longest seed of a state: Python refuses to write integers of thousands of digits as text."""

MAX_COLUMNS = 1 << 53
"""Largest number of columns of a layout."""

OnOtherState = Literal["refuse", "fresh"]
"""What to do with a state of another defense, or of a later version: refuse it, or start the memory again."""


@dataclass(frozen=True, eq=False)
class GuardState:
    """Everything that a guard remembers from round to round.

    Attributes:
        round: the rounds judged so far.
        seed: of the defense's random draws.
        defense: the defense's memory.
        method: the defense that the memory belongs to; None if it is empty and any defense may start with it.
        settings: the settings of that defense; empty in states of earlier versions.
        version: of the package that wrote the state; empty likewise.
        models: (round, SHA-256) of the last global models, oldest first.
        names: the operator's names of clients, by the framework's ids, that the memory uses.
        streaks: how many rounds in a row each client has been suspect or malformed.
        layout: of the model that the memory was measured on; None before the first round, and in states of earlier
            versions, whose memory is checked in the first round.
        audit: the round and the SHA-256 of the audit's last line; None if there is no audit, and in states of earlier
            versions.
    """

    round: int
    seed: int
    defense: Mapping[str, Any] | None = None
    method: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    models: list[tuple[int, str]] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    streaks: Streaks = field(default_factory=dict)
    layout: Layout | None = None
    audit: tuple[int, str] | None = None

    def plain(self) -> dict[str, Any]:
        """Return the state as nested dicts and lists of tensors, numbers and strings."""
        models = [list(entry) for entry in self.models]
        layout = self.layout and {"names": [*self.layout.names], "shapes": [*map(list, self.layout.shapes)]}
        audit = None if self.audit is None else [*self.audit]
        plain = {"settings": dict(self.settings), "models": models, "names": dict(self.names), "layout": layout}
        return {**vars(self), **plain, "audit": audit}


def parse_state(state: Any) -> GuardState:
    """Return a guard's state from plain values; refuse what no guard can have written."""
    found = state if isinstance(state, Mapping) else {}
    round: Any = found.get("round")
    seed: Any = found.get("seed")
    defense = found.get("defense")
    method, settings, written = found.get("method"), found.get("settings", {}), found.get("version", "")
    models, names, audit = found.get("models", []), found.get("names", {}), found.get("audit")
    if not is_round(round) or not is_seed(seed) or not isinstance(defense, Mapping | None):
        raise RunError("this is not the state of a guard: it needs a round, a seed and the defense's state")
    if not isinstance(method, str | None) or not isinstance(settings, Mapping) or not isinstance(written, str):
        raise RunError("this is not the state of a guard: its defense, settings or version are of another type")
    if not isinstance(models, list) or not all(map(is_model_entry, models)):
        raise RunError("this is not the state of a guard: its models are not rounds and hashes")
    if not isinstance(names, Mapping) or not all(isinstance(text, str) for pair in names.items() for text in pair):
        raise RunError("this is not the state of a guard: its names are not texts")
    if audit is not None and not (is_model_entry(audit) and is_sha256(audit[1])):
        raise RunError("this is not the state of a guard: its audit is not a round and a hash")
    hashes = [(number, digest) for number, digest in models]
    return GuardState(
        round,
        seed,
        defense,
        method,
        settings,
        written,
        hashes,
        names,
        read_streaks(found.get("streaks")),
        parse_layout(found.get("layout")),
        audit and (audit[0], audit[1]),
    )


def is_round(value: Any) -> bool:
    """Whether a value is a number of rounds."""
    return type(value) is int and 0 <= value <= MAX_ROUND


def is_seed(value: Any) -> bool:
    """Whether a value is an integer that can be a seed."""
    return type(value) is int and value.bit_length() <= MAX_SEED_BITS


def is_model_entry(entry: Any) -> bool:
    """Whether a value is a round and a hash."""
    return isinstance(entry, list) and len(entry) == 2 and is_round(entry[0]) and isinstance(entry[1], str)


def parse_layout(value: Any) -> Layout | None:
    """Return the layout of a saved state; None if it has none."""
    if value is None:
        return None
    names, shapes = (value.get(part) if isinstance(value, Mapping) else None for part in ("names", "shapes"))
    if not isinstance(names, list) or not isinstance(shapes, list) or not 0 < len(names) == len(shapes):
        raise RunError("this is not the state of a guard: its layout is not one shape per name")
    if not all(isinstance(name, str) for name in names) or not all(map(is_shape, shapes)):
        raise RunError("this is not the state of a guard: its layout does not consist of names and shapes")
    layout = Layout(tuple(names), tuple(map(tuple, shapes)))
    if len(set(names)) != len(names) or not 0 < layout.width <= MAX_COLUMNS:
        raise RunError("this is not the state of a guard: its layout is not that of a model")
    return layout


def is_shape(value: Any) -> bool:
    """Whether a value is the shape of a tensor."""
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= MAX_COLUMNS for size in value)


def read_state(path: str | Path, restore: bool = False) -> GuardState:
    """Read the file of a guard's state; if it is damaged, the state before it, which `restore` puts in its place."""
    content = read_sealed(Path(path), "the state of a guard", restore=restore)
    try:
        return parse_state(content)
    except RunError as error:
        raise RunError(f"{path} cannot be used: {error}") from error


def write_state(path: str | Path, state: GuardState) -> None:
    """Write the file of a guard's state, whole or not at all; the state before stays beside it."""
    write_sealed(Path(path), state.plain())


def forget_memory(state: GuardState) -> GuardState:
    """Return a state that any defense can start from: round, seed and hashes stay."""
    return replace(state, defense=None, method=None, settings={}, version=version("snowball-fl"))


def fit_state(state: GuardState, defense: Defense, on_other: OnOtherState, layout: Layout | None = None) -> GuardState:
    """Return the state for a guard with this defense; refuse or empty one that this guard cannot continue from.

    That is the state of another defense, of a later version, or with a memory that the defense refuses. The memory is
    checked against the given layout of the model, or against the state's own.
    """
    fault = find_misfit(state, defense) or find_damage(state, defense, layout or state.layout)
    if fault is None:
        return state
    if on_other == "fresh":
        return forget_memory(state)
    raise RunError(
        f"{fault}: set on_other_state='fresh' to keep its round and seed and start the defense's memory again, or"
        " go back to what wrote it, or name another file"
    )


def find_misfit(state: GuardState, defense: Defense) -> str | None:
    """Say why a defense cannot use a state; None if it can."""
    own = name_defense(defense)
    if state.method is None and state.defense is None:
        return None
    if str(state.method).casefold() not in (own.casefold(), type(defense).__name__.casefold()):
        return f"this state belongs to the defense {str(state.method)[:MAX_SHOWN_CHARS]!r}, this guard's is {own!r}"
    if read_release(state.version) > read_release(version("snowball-fl")):
        return f"this state was written by version {state.version[:MAX_SHOWN_CHARS]!r}, later than this one"
    return None


def find_damage(state: GuardState, defense: Defense, layout: Layout | None) -> str | None:
    """Say why a defense refuses the memory of a state; None if it does not, or if the model is not known yet."""
    try:
        if layout is not None:
            check_state(defense, state.defense, state.round, layout)
    except RunError as error:
        return str(error)
    return None


def encode_settings(defense: Defense) -> dict[str, Any]:
    """Return a defense's settings as plain types alone."""
    found: dict[str, Any] = json.loads(json.dumps(replace_non_finite(describe_settings(defense))))
    return found


def name_defense(defense: Defense) -> str:
    """Return the class of a defense, with those of its members; no other defense can use its memory."""
    members = ", ".join(type(member).__name__ for member in getattr(defense, "members", ()))
    return f"{type(defense).__name__}({members})" if members else type(defense).__name__


def read_release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as 1 and 2 of "1.2.dev3"; none if it does not start with one."""
    numbers: list[int] = []
    for part in text.split("."):
        if not (part.isascii() and part.isdigit() and len(part) < 10):
            break
        numbers.append(int(part))
    while numbers and not numbers[-1]:  # 1.2 and 1.2.0 are the same
        numbers.pop()
    return tuple(numbers)
