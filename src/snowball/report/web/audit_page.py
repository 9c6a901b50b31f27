"""The HTML page of an audit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowball.records.audit import REASONS, AuditEntry
from snowball.report.audit import (
    HEADERS,
    STATES,
    Audit,
    classify_clients,
    escape_text,
    find_elected_ranges,
    is_kept,
    list_fact_names,
    read_charge,
    read_number,
)
from snowball.report.audit_prose import write_audit_headline, write_audit_prose
from snowball.report.web.html import read_asset, round_numbers, write_page

MAX_DETAIL_CHARS = 160
"""The most characters of a reason that go into the page."""


def write_audit(audit: Audit, path: str | Path) -> None:
    """Write an audit as one self-contained HTML page."""
    write_page(
        path,
        read_asset("audit.html.j2"),
        [read_asset("page.css"), read_asset("audit.css")],
        [read_asset("audit.js")],
        build_audit_payload(audit),
        headline=write_audit_headline(audit),
        story=write_audit_prose(audit),
        headers=HEADERS,
        rows=[client.cells() for client in audit.clients],
        reasons=REASONS,
    )


def build_audit_payload(audit: Audit) -> dict[str, Any]:
    """Build the data for the page's script; clients are indices into the table."""
    indices = {client.client: index for index, client in enumerate(audit.clients)}
    return {
        "clients": [escape_text(client) for client in indices],
        "states": STATES,
        "rounds": [_build_round(entry, indices) for entry in audit.entries],
    }


def _build_round(entry: AuditEntry, indices: Mapping[str, int]) -> dict[str, Any]:
    now = classify_clients(entry)
    by_state = {state: [client for client, own in now.items() if own == state] for state in STATES}
    judged = [*by_state["elected"], *by_state["left_out"]]
    facts = {
        escape_text(name): [round_numbers(read_number(entry["facts"][name], each)) for each in judged]
        for name in list_fact_names(entry)
    }
    return {
        "round": entry["round"],
        "time": escape_text(entry["time"]),
        "kept": escape_text(entry["reason"] or "", MAX_DETAIL_CHARS) if is_kept(entry) else None,
        "monitored": entry["mode"] == "monitor",
        "charge": read_charge(entry),
        "states": {state: [indices[client] for client in clients] for state, clients in by_state.items() if clients},
        "dropped": [
            [indices[fault["client"]], escape_text(fault["reason"]), escape_text(fault["detail"], MAX_DETAIL_CHARS)]
            for fault in entry["dropped"]
        ],
        "facts": facts,
        "ranges": {
            escape_text(name): [round_numbers(end) for end in ends] for name, ends in find_elected_ranges(entry).items()
        },
    }
