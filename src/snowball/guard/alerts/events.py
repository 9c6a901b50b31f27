"""Events: what an operator wants to be told about a federation, derived from the entries of its audit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from snowball.records.audit import LOW_TURNOUT, UNCLEAR_FROM, JudgedRound, count_clients
from snowball.records.states import classify_clients
from snowball.records.text import escape_text

Kind = Literal["round", "suspect", "malformed", "low-turnout", "kept", "unclear", "not-saved"]

KINDS: dict[Kind, str] = {
    "round": "a round was judged; every round has this event",
    "suspect": "a client was suspect several rounds in a row",
    "malformed": "a client sent malformed replies several rounds in a row",
    "low-turnout": "too few clients answered",
    "kept": "the global model stays as it was",
    "unclear": "the evidence nearly reached an accusation",
    "not-saved": "a line of the audit, the guard's state or a model could not be written",
}
"""The kinds of events and what each means."""

ALERTS: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "round")
"""The kinds that somebody should look at."""

MAX_ID_CHARS = 200
"""Longest id of a client that is passed on."""

MAX_REASON_CHARS = 300
"""Longest reason or charge in a message."""

RESULTS = {
    "elected": "its reply was elected",
    "not_needed": "its reply was left out without an accusation",
    "suspect": "its reply was left out on evidence",
    "probation": "its reply was judged and not accused, but a person's decision keeps it out of the model",
    "unjudged": "its reply was valid, but the defense could not judge the round",
    "malformed": "its reply was dropped, because it was malformed",
    "failed": "it failed, or its reply could not be read",
    "denied": "a person decided that its reply is not judged",
    "dropped": "its reply was not counted, e.g. because its id is the name of another site",
    "silent": "it did not answer",
}
"""The results of a round for one client and what each means; each client that was asked has one."""

STREAK_ENDS: dict[Kind, frozenset[str]] = {
    "suspect": frozenset({"elected", "not_needed", "probation"}),
    "malformed": frozenset({"elected", "not_needed", "suspect", "probation", "unjudged"}),
}
"""The kinds of events that take several rounds in a row, and the results that end such a streak."""

STREAK_WORDS: dict[Kind, str] = {"suspect": "was suspect", "malformed": "sent malformed replies"}

MAX_STREAKS = 1000
"""The most streaks of a kind that are remembered, the latest first to stay: clients may come and go."""

Streaks = dict[str, dict[str, int]]
"""By kind of event and client: how many rounds in a row; other rounds of the client neither add to it nor end it."""


@dataclass(frozen=True)
class Event:
    """Something that a listener is told about a round.

    Attributes:
        client: the client that it is about; None if it is about the whole round.
        message: one sentence, in which clients' names are escaped and shortened.
        entry: the round's entry in the audit; do not change it.
    """

    kind: Kind
    round: int
    client: str | None
    message: str
    entry: JudgedRound


Listener = Callable[[Event], object]
"""Gets every event; what it returns is ignored."""


def find_events(entry: JudgedRound, streaks: Streaks, patience: int) -> tuple[list[Event], Streaks]:
    """Return the events of a round, and the streaks after it; a streak is an event when it reaches `patience`."""
    after = extend_streaks(classify_asked(entry), streaks)
    messages = [*describe_round(entry), *describe_streaks(entry, streaks, after, patience)]
    number = entry["round"]
    return [Event(kind, number, client, f"Round {number}: {text}", entry) for kind, client, text in messages], after


def describe_round(entry: JudgedRound) -> Iterator[tuple[Kind, None, str]]:
    """Yield what there is to say about a whole round."""
    counts = ", ".join(f"{count} {part.replace('_', ' ')}" for part, count in count_clients(entry).items())
    reason = escape_text(entry["reason"] or "", MAX_REASON_CHARS)
    yield "round", None, f"{entry['outcome']}, {counts}"
    if reason.startswith(LOW_TURNOUT):
        yield "low-turnout", None, reason
    if entry["outcome"] == "kept":
        yield "kept", None, f"the old global model stays: {reason}"
    if entry["clarity"] is not None and UNCLEAR_FROM <= entry["clarity"] < 1:
        yield "unclear", None, f"the strongest evidence reaches {entry['clarity']:.0%} of what an accusation needs"


def describe_streaks(
    entry: JudgedRound, before: Streaks, after: Streaks, patience: int
) -> Iterator[tuple[Kind, str, str]]:
    """Yield what there is to say about the clients whose streak reaches `patience` in this round."""
    for kind in STREAK_ENDS:
        for client, count in after[kind].items():
            if before.get(kind, {}).get(client, 0) < patience <= count:
                evidence = escape_text(find_evidence(entry, kind, client), MAX_REASON_CHARS)
                said = f"{escape_text(client, MAX_ID_CHARS)} {STREAK_WORDS[kind]}"
                said += f" {count} rounds in a row" if count > 1 else ""
                yield kind, client, f"{said}: {evidence}" if evidence else said


def find_evidence(entry: JudgedRound, kind: Kind, client: str) -> str:
    """Return what a client is accused of, or why its reply was dropped; empty if nothing says so."""
    if kind == "suspect":
        charge = entry["facts"].get("charge")
        return charge if isinstance(charge, str) else ""
    faults = (fault for fault in entry["dropped"] if fault["client"] == client)
    return "; ".join(f"{fault['reason']}, {fault['detail']}" for fault in faults)


def classify_asked(entry: JudgedRound) -> dict[str, str]:
    """Return the result of a round for each client that was asked, or that is in the entry if nobody knows."""
    results = classify_clients(entry)
    asked = results.keys() if entry["asked"] is None else set(entry["asked"])
    return {client: result for client, result in results.items() if client in asked}


def extend_streaks(results: Mapping[str, str], streaks: Streaks) -> Streaks:
    """Return the streaks after one more round."""
    return {kind: extend_streak(kind, results, streaks.get(kind, {})) for kind in STREAK_ENDS}


def extend_streak(kind: Kind, results: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the streaks of one kind after one more round, the latest last."""
    resting = {client: count for client, count in counts.items() if results.get(client) not in STREAK_ENDS[kind]}
    grown = {client: counts.get(client, 0) + 1 for client, result in results.items() if result == kind}
    unchanged = {client: count for client, count in resting.items() if client not in grown}
    return dict([*unchanged.items(), *grown.items()][-MAX_STREAKS:])


def rename_streaks(streaks: Streaks, names: Mapping[str, str]) -> Streaks:
    """Return streaks in which some clients have other names; what is known under a new name already stays."""
    return {
        kind: {names[client]: count for client, count in counts.items() if client in names}
        | {client: count for client, count in counts.items() if client not in names}
        for kind, counts in streaks.items()
    }


def read_streaks(value: Any) -> Streaks:
    """Return the streaks of a saved state; a state of an earlier version has none."""
    found = {kind: value.get(kind) if isinstance(value, Mapping) else None for kind in STREAK_ENDS}
    return {
        kind: {str(client): count for client, count in counts.items() if type(count) is int}
        for kind, counts in found.items()
        if isinstance(counts, Mapping)
    }
