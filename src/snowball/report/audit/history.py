"""The history of one client: what each round meant to it, with the evidence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from snowball.records.audit import AuditEntry, Decision
from snowball.records.states import (
    DROPPED_STATES,
    JUDGED_STATES,
    LEFT_OUT_STATES,
    STATES,
    classify_clients,
    find_decision,
    find_faults,
    is_kept,
)
from snowball.records.text import escape_text
from snowball.report.audit.facts import (
    Ballot,
    Range,
    find_elected_ranges,
    list_fact_names,
    read_ballots,
    read_charge,
    read_number,
)
from snowball.report.runs import ABSENT


@dataclass(frozen=True)
class Moment:
    """One round from a client's point of view.

    Attributes:
        state: a key of `STATES`.
        words: what happened.
        facts: the client's numbers.
        ranges: the lowest and the highest number among the elected, if the client was left out, to compare with.
        ballots: what the ballots found, if the client was judged.
        share: the client's share of the average; None if it was not averaged, or the result is not an average.
        clarity: how clear the round was.
        decision: the decision of a person about the client.
    """

    round: int
    time: str
    state: str
    words: str
    facts: dict[str, float]
    ranges: dict[str, Range]
    ballots: list[Ballot]
    share: float | None
    clarity: float | None
    decision: Decision | None


def list_moments(entries: Iterable[AuditEntry], client: str) -> Iterator[Moment]:
    """Return the rounds that a client took part in."""
    for entry in entries:
        if state := classify_clients(entry).get(client):
            yield build_moment(entry, client, state)


def build_moment(entry: AuditEntry, client: str, state: str) -> Moment:
    """Return a round from a client's point of view."""
    judged = state in JUDGED_STATES
    found = {name: read_number(entry["facts"][name], client) for name in list_fact_names(entry)} if judged else {}
    facts = {name: value for name, value in found.items() if value is not None}
    ranges = find_elected_ranges(entry) if state in LEFT_OUT_STATES else {}
    return Moment(
        round=entry["round"],
        time=entry["time"],
        state=state,
        words=describe_moment(entry, client, state),
        facts=facts,
        ranges={name: ranges[name] for name in ranges if name in facts},
        ballots=read_ballots(entry) if judged else [],
        share=entry["shares"].get(client),
        clarity=entry["clarity"],
        decision=find_decision(entry, client),
    )


def describe_moment(entry: AuditEntry, client: str, state: str) -> str:
    """Describe in words what happened to a client in a round."""
    words, decision = STATES[state], find_decision(entry, client)
    if state == "denied" and decision:
        return f"{words}{_add_decision(decision)}{add_reason(entry)}"
    if state in ("suspect", "left_out") and (charge := read_charge(entry)):
        words = f"{words}: {charge}"
    if state in LEFT_OUT_STATES and client in entry["averaged"]:
        words = f"{words}; averaged nevertheless"
    faults = "; ".join(
        f"{escape_text(fault['reason'])}: {fault['detail'] or ABSENT}" for fault in find_faults(entry, client)
    )
    more = f", {faults}" if state in DROPPED_STATES else f"; a reply was dropped, {faults}"
    return f"{words}{more if faults else ''}{_add_decision(decision)}{add_reason(entry)}"


def _add_decision(decision: Decision | None) -> str:
    return f"; {describe_decision(decision)}" if decision else ""


def add_reason(entry: AuditEntry) -> str:
    """Say why the old model was kept, or what else was wrong with the round."""
    if is_kept(entry):
        return f"; the old model was kept: {entry['reason'] or ABSENT}"
    return f"; {entry['reason']}" if entry["reason"] else ""


def describe_decision(decision: Decision) -> str:
    """Say who decided what about a client, and why."""
    rules = {"allow": "allowed", "deny": "denied", "probation": "put on probation"}
    until = f" until {escape_text(decision['until'])}" if decision["until"] else ""
    return f"{rules[decision['rule']]}{until} by {escape_text(decision['by'])}: {escape_text(decision['reason'])}"
