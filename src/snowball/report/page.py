"""The page on runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records import Record, RunFolder
from snowball.report.data import loaded
from snowball.report.html import asset, short, write_page
from snowball.report.story import headline, outcome, story
from snowball.report.table import HEADERS, STAGES, run_names, table
from snowball.report.trigger import figures

MOST_FACTS = 24
"""Facts of a round that go into the page: a deep network has hundreds, one a layer, few of them ever looked at."""


def write_html(folders: Sequence[RunFolder], path: str | Path) -> None:
    """Write the report on these runs to one self-contained page."""
    if not folders:
        raise RunError(f"there is no run to report on in {path}")
    from plotly.offline import get_plotlyjs  # slow to import, and no other page needs it

    rows = table(folders)
    write_page(
        path,
        asset("page.html.j2"),
        [asset("page.css")],
        [get_plotlyjs(), asset("page.js")],
        page_data(folders),
        headline=headline(rows),
        story=story(rows),
        headers=HEADERS,
        rows=[(row.cells(), outcome(row.last_main_accuracy, row.last_backdoor_accuracy)) for row in rows],
        figures=figures(folders),
        loaded=loaded(folders),
        settings=[(row.name, _settings(folder)) for row, folder in zip(rows, folders, strict=True)],
    )


def page_data(folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """What the page draws, with no more digits than a screen can show."""
    return [
        {"name": name, "rounds": [_round(record) for record in folder.rounds()]}
        for name, folder in zip(run_names(folders), folders, strict=True)
    ]


def _round(record: Record) -> dict[str, Any]:
    columns, numbers = _facts(record)
    return {
        "round": record["round"],
        "main": short(record["main_accuracy"]),
        "backdoor": short(record["backdoor_accuracy"]),
        "falsePositive": short(record["false_positive_rate"]),
        "falseNegative": short(record["false_negative_rate"]),
        "seconds": [short(record["seconds"].get(stage)) for stage in STAGES],
        "clients": record["participants"],
        "malicious": [int(bad) for bad in record["malicious"]],
        "elected": [int(chosen) for chosen in record["elected"]],
        "map": short(record["map"]),
        "columns": columns,
        "numbers": numbers,
    }


def _facts(record: Record) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """The facts that are a number a participant, and those that are one number; others have no place on the page."""
    names = [name for name in record["facts"] if not name.startswith("seconds.")]
    names = sorted(names, key=lambda name: ("." in name, name))  # facts of one layer have dotted names and come last
    facts = {name: record["facts"][name] for name in names}
    columns = {name: short(fact) for name, fact in facts.items() if _is_column(fact, len(record["participants"]))}
    numbers = {name: short(fact) for name, fact in facts.items() if isinstance(fact, int | float)}
    return dict(list(columns.items())[:MOST_FACTS]), dict(list(numbers.items())[:MOST_FACTS])


def _is_column(fact: Any, length: int) -> bool:
    return (
        isinstance(fact, list)
        and len(fact) == length
        and all(entry is None or isinstance(entry, int | float) for entry in fact)
    )


def _settings(folder: RunFolder) -> str:
    """A run's record but for its trigger, which has a place of its own on the page."""
    return json.dumps({name: value for name, value in folder.run.items() if name != "trigger"}, indent=2)
