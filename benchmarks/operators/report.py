"""Compares the records with what operators were promised."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tables.markdown import format_table
from snowball.errors import RunError
from snowball.records.files import read_json

MAX_BACKDOOR, MAX_LOSS, MAX_LEFT_OUT = 0.05, 0.02, 0.1
"""Bounds on the backdoor's accuracy, on the loss against the clean run, and on the rounds without an honest site."""

Record = dict[str, Any]


class Row(NamedTuple):
    """The worst of some runs that differ in their seeds.

    Attributes:
        loss: by how much the accuracy is below that of the clean run with the same seed; None without such a run.
        left_out: the share of rounds that the honest site with the most was left out of, or dropped in.
    """

    way: str
    behaviour: str
    hostile: int
    runs: int
    main_accuracy: float
    backdoor_accuracy: float
    loss: float | None
    left_out: float

    @property
    def holds(self) -> bool:
        """Whether every bound holds."""
        return (
            self.backdoor_accuracy < MAX_BACKDOOR
            and (self.loss is None or self.loss <= MAX_LOSS)
            and self.left_out <= MAX_LEFT_OUT
        )


def read_records(folder: Path) -> list[Record]:
    """Read the records of all ways."""
    records = [read_json(path) for path in sorted(folder.glob("*/*.json"))]
    if not records:
        raise RunError(f"there is no record in {folder}")
    return records


def make_rows(records: Iterable[Record]) -> list[Row]:
    """Group records by way, behaviour and number of hostile sites."""
    groups: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    clean = {}
    for record in records:
        groups[record["way"], record["behaviour"], len(record["hostile"])].append(record)
        if record["behaviour"] == "clean":
            clean[record["way"], record["seed"]] = record["main_accuracy"]
    return [make_row(*key, group, clean) for key, group in groups.items()]


def make_row(
    way: str, behaviour: str, hostile: int, group: Sequence[Record], clean: dict[tuple[str, int], float]
) -> Row:
    """Return the worst of a group."""
    losses = [
        clean[way, record["seed"]] - record["main_accuracy"] for record in group if (way, record["seed"]) in clean
    ]
    return Row(
        way,
        behaviour,
        hostile,
        len(group),
        min(record["main_accuracy"] for record in group),
        max(record["backdoor_accuracy"] for record in group),
        max(losses, default=None),
        max(map(find_left_out, group)),
    )


def find_left_out(record: Record) -> float:
    """Return the share of rounds that some honest site was left out of, or dropped in: the largest."""
    sites = {*record["left_out"], *record["dropped"]} - set(record["hostile"])
    rounds = [record["left_out"].get(site, 0) + record["dropped"].get(site, 0) for site in sites]
    return max(rounds, default=0) / record["rounds"]


def print_report(folder: Path, as_json: bool) -> int:
    """Print a table or JSON, and return 0 if every bound holds."""
    rows = make_rows(read_records(folder))
    print(json.dumps({"rows": [row._asdict() for row in rows]}, indent=1) if as_json else tabulate_rows(rows))
    return 0 if all(row.holds for row in rows) else 1


def tabulate_rows(rows: Iterable[Row]) -> str:
    """Tabulate the worst seed of each kind of run."""
    heads = ("way", "behaviour", "hostile", "runs", "accuracy, %", "backdoor, %", "below clean, points", "left out, %")
    return format_table((*heads, "holds"), map(describe_row, rows))


def describe_row(row: Row) -> list[str]:
    """Return the cells of a row."""
    loss = "-" if row.loss is None else f"{100 * row.loss:.1f}"
    shares = (f"{100 * row.main_accuracy:.1f}", f"{100 * row.backdoor_accuracy:.1f}", loss, f"{100 * row.left_out:.0f}")
    return [row.way, row.behaviour, str(row.hostile), str(row.runs), *shares, "yes" if row.holds else "no"]
