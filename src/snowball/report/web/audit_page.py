"""The page on an audit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowball.records.audit import REASONS, AuditEntry
from snowball.report.audit import (
    HEADERS,
    STATES,
    Audit,
    elected_ranges,
    fact_names,
    is_kept,
    number,
    read_charge,
    states,
    visible,
)
from snowball.report.audit_prose import audit_headline, audit_story
from snowball.report.web.html import asset, short, write_page

DETAIL = 160
"""Characters of a reason that go into the page."""


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write what an audit amounts to as one self-contained page."""
    write_page(
        path,
        asset("audit.html.j2"),
        [asset("page.css"), asset("audit.css")],
        [asset("audit.js")],
        audit_data(audit),
        headline=audit_headline(audit),
        story=audit_story(audit),
        headers=HEADERS,
        rows=[client.cells() for client in audit.clients],
        reasons=REASONS,
    )


def audit_data(audit: Audit) -> dict[str, Any]:
    """What the page's script draws: clients by their place in the table."""
    places = {client.client: place for place, client in enumerate(audit.clients)}
    return {
        "clients": [visible(client) for client in places],
        "states": STATES,
        "rounds": [_round(entry, places) for entry in audit.entries],
    }


def _round(entry: AuditEntry, places: Mapping[str, int]) -> dict[str, Any]:
    now = states(entry)
    by_state = {state: [client for client, own in now.items() if own == state] for state in STATES}
    judged = [*by_state["elected"], *by_state["left_out"]]
    facts = {
        visible(name): [short(number(entry["facts"][name], each)) for each in judged] for name in fact_names(entry)
    }
    return {
        "round": entry["round"],
        "time": visible(entry["time"]),
        "kept": visible(entry["reason"] or "", DETAIL) if is_kept(entry) else None,
        "monitored": entry["mode"] == "monitor",
        "charge": read_charge(entry),
        "states": {state: [places[client] for client in clients] for state, clients in by_state.items() if clients},
        "dropped": [
            [places[fault["client"]], visible(fault["reason"]), visible(fault["detail"], DETAIL)]
            for fault in entry["dropped"]
        ],
        "facts": facts,
        "ranges": {visible(name): [short(end) for end in ends] for name, ends in elected_ranges(entry).items()},
    }
