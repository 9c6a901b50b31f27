"""The audit of a federation: one line of JSON per round says who was asked, who answered, who was left out, and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict, cast, get_args

from snowball.errors import RunError
from snowball.records.files import check_fields, parse_json, read_lines


class DroppedReply(TypedDict):
    """A reply that was not judged; `reason` is a key of `REASONS`, and `detail` says more in words."""

    client: str
    reason: str
    detail: str


Rule = Literal["allow", "deny", "probation"]
"""A person's decision about a client: average it in any case, never judge it, or judge it but never average it."""


class Decision(TypedDict):
    """A decision of a person about a client, as it was in force in a round.

    Attributes:
        by: who decided.
        until: the last day on which it is in force, as YYYY-MM-DD; None if it has no end.
    """

    client: str
    rule: Rule
    reason: str
    by: str
    until: str | None


class JudgedRound(TypedDict):
    """A judged round; clients are named as the operator names them, or by the framework's ids.

    Attributes:
        round: from 1.
        time: when the round was judged, UTC.
        version: of the package.
        defense, settings: the name and the settings of the defense.
        outcome: "kept" if the global model stays as it was.
        reason: why it was kept; a round that is aggregated despite a low turnout, or, monitored, although the defense
            could not judge, has a reason too.
        asked: None if nobody knows who was asked.
        elected, left_out: the defense's decision about the clients that it judged.
        suspects: those of the clients left out whom the defense accuses; it needs no evidence to leave out the others.
        clarity: how close the strongest evidence is to an accusation, or how far beyond: the bound is 1; None if the
            defense does not measure it.
        averaged: the clients that went into the model: the elected, or all judged in monitor mode.
        shares: the share of the average of each averaged client, or of the weights that Flower's strategy gets; empty
            if the result is not an average.
        decisions: the decisions of people that were in force.
        ids: the framework's id of each client that has another name.
        facts: the defense's evidence: a number, one number per judged client, or a text; `charge` is the text that
            says what those left out are accused of.
        seconds: how long the guard took to judge; None if it is not known.
        model_before: sha256 of the global model's tensors.
    """

    round: int
    time: str
    version: str
    defense: str
    settings: dict[str, Any]
    mode: Literal["enforce", "monitor"]
    outcome: Literal["aggregated", "kept"]
    reason: str | None
    asked: list[str] | None
    answered: list[str]
    silent: list[str]
    dropped: list[DroppedReply]
    elected: list[str]
    left_out: list[str]
    suspects: list[str]
    clarity: float | None
    averaged: list[str]
    shares: dict[str, float]
    decisions: list[Decision]
    ids: dict[str, str]
    facts: dict[str, Any]
    seconds: float | None
    model_before: str


class RecordedRound(JudgedRound):
    """A judged round, and the sha256 of the global model after it."""

    model_after: str


class AuditEntry(RecordedRound):
    """One line of an audit.

    Attributes:
        previous: sha256 of the line before; zeros in the first line, None in lines of earlier versions.
        signature: of the line without this field, ed25519 in hexadecimal digits; None if the line is not signed.
    """

    previous: str | None
    signature: str | None


REASONS = {
    "error": "the client failed, or its answer could not be read",
    "identity": "the client is unknown, and its id is the name of a site",
    "denied": "a person decided that it is not to be judged",
    "not-asked": "the client was not asked",
    "duplicate": "the client had already answered",
    "names": "the names of its tensors are not the model's",
    "shape": "the shape of a tensor differs from the model's",
    "dtype": "the type of a tensor's numbers does not fit the model's, or it holds none",
    "not-finite": "a tensor holds NaN or infinite numbers",
    "range": "a counter jumps too far, a variance is negative, or a statistic is far off",
    "norm": "the update is far too long",
    "examples": "the number of examples is impossible or above the bound",
    "no-length": "the update is zero, or negligible beside the others: the client did not train",
    "copy": "the update equals that of another client, and counts as one with it",
}
"""The reasons for dropping a reply."""

LOW_TURNOUT = "low turnout"
"""Starts the reason of a round that too few clients answered."""

UNCLEAR_FROM = 0.8
"""The clarity from which a round is unclear; from 1 on, somebody is accused."""

MAX_ROUND = 1 << 53
"""The highest round: larger integers lose digits in programs that read JSON numbers as floats."""


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _are_dropped(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_dropped, value))


def _is_dropped(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("client", "reason", "detail"))


def _are_decisions(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_decision, value))


def _is_decision(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("client", "reason", "by"))
        and value.get("rule") in get_args(Rule)
        and isinstance(value.get("until"), str | None)
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_sha256(value: Any) -> bool:
    """Whether a value is a SHA-256 in hexadecimal digits."""
    return _is_hex(value, 64)


def _is_hex(value: Any, digits: int) -> bool:
    return isinstance(value, str) and len(value) == digits and set(value) <= set("0123456789abcdef")


FIELDS: dict[str, Callable[[Any], bool]] = {
    "round": lambda value: type(value) is int and 1 <= value <= MAX_ROUND,
    "time": _is_text,
    "version": _is_text,
    "defense": _is_text,
    "settings": lambda value: isinstance(value, dict),
    "mode": lambda value: value in ("enforce", "monitor"),
    "outcome": lambda value: value in ("aggregated", "kept"),
    "reason": lambda value: value is None or isinstance(value, str),
    "asked": lambda value: value is None or _are_names(value),
    "answered": _are_names,
    "silent": _are_names,
    "dropped": _are_dropped,
    "elected": _are_names,
    "left_out": _are_names,
    "suspects": _are_names,
    "clarity": lambda value: value is None or _is_number(value),
    "averaged": _are_names,
    "shares": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "decisions": _are_decisions,
    "ids": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "facts": lambda value: isinstance(value, dict),
    "seconds": lambda value: value is None or _is_number(value),
    "model_before": _is_text,
    "model_after": _is_text,
    "previous": lambda value: value is None or is_sha256(value),
    "signature": lambda value: value is None or _is_hex(value, 128),
}
"""The fields of an entry, and the check of each."""

LATER_FIELDS: dict[str, Any] = {
    "version": "",
    "defense": "",
    "settings": {},
    "suspects": [],
    "clarity": None,
    "shares": {},
    "decisions": [],
    "ids": {},
    "seconds": None,
    "previous": None,
    "signature": None,
}
"""Fields that a line may lack, as in audits of earlier versions, and the value that stands for "not known"."""


def read_audit(path: str | Path) -> list[AuditEntry]:
    """Read the rounds of an audit; skip a last line that a crash or a full disk left incomplete."""
    if not Path(path).is_file():
        raise RunError(f"there is no audit in {path}: it is not a file")
    return [parse_entry(line, where) for line, where in read_lines(Path(path))]


def parse_entry(line: bytes, where: str) -> AuditEntry:
    """Return a line of an audit; errors name `where`."""
    fault = f"{where} is not a round of an audit"
    return cast(AuditEntry, check_fields(parse_json(line, where), FIELDS, fault, LATER_FIELDS))


def count_clients(entry: JudgedRound) -> dict[str, int]:
    """Count the clients, or replies, in each part of a round, for a log."""
    return {
        "answered": len(entry["answered"]),
        "silent": len(entry["silent"]),
        "dropped": len(entry["dropped"]),
        "left_out": len(entry["left_out"]),
        "averaged": len(entry["averaged"]),
    }
