"""The data of a run for the page: packed, since a page of a hundred runs opens few of them."""

import json
from collections.abc import Sequence
from typing import Any

from snowball.records.rounds import RoundRecord
from snowball.records.run import RunInfo
from snowball.report.audit.facts import CHARGE_FACT, MAX_CHARGE_CHARS
from snowball.report.clients import ClientSummary, is_column, summarise_clients
from snowball.report.runs import STAGES
from snowball.report.web.html import pack_text, round_numbers

MAX_FACTS = 24
"""The most facts of a round in the page: a deep network has hundreds, one per layer, and readers look at few."""

DIGITS = 4
"""The significant digits of every number: no screen shows more, and one more would make the page a fifth larger."""


def pack_run(run: RunInfo, records: Sequence[RoundRecord]) -> str:
    """Pack a run's rounds and settings into text."""
    return pack_text(json.dumps(build_run_payload(run, records), separators=(",", ":")))


def build_run_payload(run: RunInfo, records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Build the data of a run that the page draws."""
    return {
        "rounds": [_build_round(record) for record in records],
        "clients": [_build_client(summary) for summary in summarise_clients(records)],
        "settings": _format_settings(run),
    }


def _build_client(summary: ClientSummary) -> list[str | int]:
    """Build a line of the table of clients."""
    counts = (summary.infected, summary.rounds, summary.elected, summary.left_out, summary.infected_elected)
    return [summary.client, *counts, summary.reason]


def _build_round(record: RoundRecord) -> dict[str, Any]:
    columns, numbers = _split_facts(record)
    return {
        "round": record["round"],
        "main": round_numbers(record["main_accuracy"], DIGITS),
        "backdoor": round_numbers(record["backdoor_accuracy"], DIGITS),
        "falsePositive": round_numbers(record["false_positive_rate"], DIGITS),
        "falseNegative": round_numbers(record["false_negative_rate"], DIGITS),
        "seconds": [round_numbers(record["seconds"].get(stage), DIGITS) for stage in STAGES],
        "clients": record["participants"],
        "malicious": [int(bad) for bad in record["malicious"]],
        "elected": [int(chosen) for chosen in record["elected"]],
        "map": round_numbers(record["map"], DIGITS),
        "columns": columns,
        "numbers": numbers,
        "charge": charge[:MAX_CHARGE_CHARS] if isinstance(charge := record["facts"].get(CHARGE_FACT), str) else "",
        "dropped": record.get("dropped", {}),
        "kept": record.get("kept"),
    }


def _split_facts(record: RoundRecord) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """Split the facts into those with one number per participant and those with a single number; drop all others."""
    names = [name for name in record["facts"] if not name.startswith("seconds.")]
    names = sorted(names, key=lambda name: ("." in name, name))  # facts of one layer have dotted names and come last
    facts = {name: record["facts"][name] for name in names}
    columns = {name: fact for name, fact in facts.items() if is_column(fact, len(record["participants"]))}
    numbers = {name: fact for name, fact in facts.items() if isinstance(fact, int | float)}
    return _shorten_facts(columns), _shorten_facts(numbers)


def _shorten_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: round_numbers(fact, DIGITS) for name, fact in list(facts.items())[:MAX_FACTS]}


def _format_settings(run: RunInfo) -> str:
    """Format run.json without the trigger, which the page shows elsewhere."""
    return json.dumps({name: value for name, value in run.items() if name != "trigger"}, indent=2)
