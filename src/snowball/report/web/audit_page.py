"""The HTML page of an audit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snowball.records.audit import REASONS, AuditEntry, Decision
from snowball.records.states import JUDGED_STATES, STATES, classify_clarity, classify_clients, is_kept
from snowball.records.text import escape_text
from snowball.report.audit.facts import (
    DIRECTIONS,
    Ballot,
    find_elected_ranges,
    find_meaning,
    list_fact_names,
    read_ballots,
    read_charge,
    read_number,
)
from snowball.report.audit.history import add_reason, describe_decision
from snowball.report.audit.names import write_name
from snowball.report.audit.prose import write_audit_headline, write_audit_prose
from snowball.report.audit.setups import Setup, write_setting
from snowball.report.audit.summary import Audit
from snowball.report.audit.table import build_client_table
from snowball.report.web.html import read_asset, round_numbers, write_page

MAX_DETAIL_CHARS = 160
"""The most characters of a reason that go into the page."""


@dataclass(frozen=True)
class DecidedRounds:
    """A decision of a person, with the first and the last round in which it was in force."""

    decision: Decision
    first: int
    last: int


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write an audit as one self-contained HTML page."""
    headers, *rows = build_client_table(audit)
    write_page(
        path,
        read_asset("audit.html.j2"),
        [read_asset("page.css"), read_asset("audit.css")],
        [read_asset("audit.js")],
        build_audit_payload(audit),
        headline=write_audit_headline(audit),
        story=write_audit_prose(audit),
        states=STATES,
        shown={state for client in audit.clients for state in client.rounds},
        clarity=any(entry["clarity"] is not None for entry in audit.entries),
        headers=headers,
        rows=[(client.standing, cells) for client, cells in zip(audit.clients, rows, strict=True)],
        setups=[_write_setup(setup) for setup in audit.setups],
        decisions=[_write_decision(each) for each in list_decisions(audit.entries)],
        meanings=_list_meanings(audit.entries),
        reasons=REASONS,
    )


def list_decisions(entries: Iterable[AuditEntry]) -> list[DecidedRounds]:
    """Return the decisions of people, in the order in which they came into force."""
    found: dict[tuple[str, ...], DecidedRounds] = {}
    for entry in entries:
        for decision in entry["decisions"]:
            key = tuple(map(str, decision.values()))
            first = found[key].first if key in found else entry["round"]
            found[key] = DecidedRounds(decision, first, entry["round"])
    return list(found.values())


def _write_setup(setup: Setup) -> tuple[str, ...]:
    settings = ", ".join(f"{escape_text(name)} = {write_setting(value)}" for name, value in setup.settings.items())
    names = (setup.defense, setup.version, setup.mode)
    return str(setup.round), *(escape_text(name) or "not known" for name in names), settings or "not known"


def _write_decision(each: DecidedRounds) -> tuple[str, ...]:
    own = each.decision
    why, rounds = escape_text(own["reason"], MAX_DETAIL_CHARS), f"{each.first} to {each.last}"
    return write_name(own["client"]), own["rule"], why, *map(escape_text, (own["by"], own["until"] or "no end", rounds))


def _list_meanings(entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Return what the numbers in the histories mean, and which direction is bad."""
    names = dict.fromkeys(name for entry in entries for name in list_fact_names(entry))
    found = {name.partition(".")[0]: meaning for name in names if (meaning := find_meaning(name))}
    return {
        name: f"{meaning.words}; {meaning.worse} is worse" if DIRECTIONS[meaning.worse] else meaning.words
        for name, meaning in found.items()
    }


def build_audit_payload(audit: Audit) -> dict[str, Any]:
    """Build the data for the page's script; clients are indices into the table."""
    indices = {client.client: index for index, client in enumerate(audit.clients)}
    return {
        "clients": [write_name(client) for client in indices],
        "labels": [client.label for client in audit.clients],
        "standings": [client.standing for client in audit.clients],
        "states": STATES,
        "rounds": [_build_round(entry, indices) for entry in audit.entries],
    }


def _build_round(entry: AuditEntry, indices: Mapping[str, int]) -> dict[str, Any]:
    now = classify_clients(entry)
    by_state = {state: [client for client, own in now.items() if own == state] for state in STATES}
    judged = [client for state in JUDGED_STATES for client in by_state[state]]
    facts = {
        escape_text(name): [round_numbers(read_number(entry["facts"][name], each)) for each in judged]
        for name in list_fact_names(entry)
    }
    shares = {indices[client]: round_numbers(share) for client, share in entry["shares"].items() if client in indices}
    return {
        "round": entry["round"],
        "time": escape_text(entry["time"]),
        "kept": is_kept(entry),
        "reason": escape_text(add_reason(entry), MAX_DETAIL_CHARS),
        "clarity": round_numbers(entry["clarity"]),
        "clear": classify_clarity(entry),
        "charge": read_charge(entry),
        "states": {state: [indices[client] for client in clients] for state, clients in by_state.items() if clients},
        "judged": [indices[client] for client in judged],
        "averaged": [indices[client] for client in entry["averaged"] if client in indices],
        "shares": shares,
        "dropped": [
            [indices[fault["client"]], escape_text(fault["reason"]), escape_text(fault["detail"], MAX_DETAIL_CHARS)]
            for fault in entry["dropped"]
        ],
        "decisions": [
            [indices[each["client"]], describe_decision(each)]
            for each in entry["decisions"]
            if each["client"] in indices
        ],
        "ballots": [_build_ballot(ballot, indices) for ballot in read_ballots(entry)],
        "facts": facts,
        "ranges": {
            escape_text(name): [round_numbers(end) for end in ends] for name, ends in find_elected_ranges(entry).items()
        },
    }


def _build_ballot(ballot: Ballot, indices: Mapping[str, int]) -> list[Any]:
    charged = None if ballot.charged is None else [indices[each] for each in ballot.charged if each in indices]
    return [escape_text(ballot.name), ballot.words, round_numbers(ballot.clarity), round_numbers(ballot.bound), charged]
