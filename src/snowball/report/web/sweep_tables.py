"""Tables of sweeps for the page: headings that span columns, and numbers that link to their runs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from snowball.report.cell_text import describe_seeds, describe_worst, format_metric, list_row_labels, name_value
from snowball.report.run_metrics import METRICS, Metric
from snowball.report.sweeps import Sweep, read_published_numbers
from snowball.report.tables import MAX_DIFFERENCE, Cell, SweepTable, build_sweep_table

DIGITS = 2
"""The decimals of a percentage, as in the paper."""


@dataclass(frozen=True)
class Head:
    """A heading, and how many columns it spans."""

    text: str
    span: int


@dataclass(frozen=True)
class Number:
    """A metric in a cell.

    Attributes:
        difference: the mean minus the published number, with its sign.
        compared: how the two compare in one word, if they are far apart.
        worst: the worst value of the table's setting, if it shows one.
    """

    mean: str
    spread: str
    published: str
    difference: str
    compared: str
    best: bool
    worst: str


@dataclass(frozen=True)
class Box:
    """A cell of the page, with one number per metric.

    Attributes:
        runs: the indices of its runs on the page.
        missing: how many of its runs there are, if some are missing.
        reason: why they are missing.
    """

    numbers: tuple[Number, ...]
    runs: tuple[int, ...]
    missing: str
    reason: str


@dataclass(frozen=True)
class PaperTable:
    """A table of the page.

    Attributes:
        heads: lines of headings, each with its setting.
        corner: the settings of the rows.
        seeds: what the numbers are taken over.
        worst: a sentence on the setting whose worst value the numbers show, if there is one.
        source: the source of the published numbers.
        compared: how many numbers are "alike", "worse" or "better" than the published ones.
    """

    title: str
    heads: tuple[tuple[str, tuple[Head, ...]], ...]
    corner: str
    metrics: tuple[Metric, ...]
    rows: tuple[tuple[str, tuple[Box, ...]], ...]
    seeds: str
    worst: str
    source: str
    compared: Counter[str]

    @property
    def agreement(self) -> str:
        """A sentence on how many of the published numbers are met."""
        return describe_agreement(self.compared)


def build_paper_table(sweep: Sweep, indices: Mapping[Path, int]) -> PaperTable | None:
    """Build a sweep's table, unless it has only a figure; `indices` are those of the runs' folders on the page."""
    if sweep.table is None and sweep.figure is not None:
        return None
    table = build_sweep_table(sweep)
    found = {run.name: indices.get(run.folder.resolve()) for run in sweep.runs}
    return PaperTable(
        title=table.title,
        heads=_build_heads(table),
        corner=", ".join(map(_shorten_path, table.row_names)),
        metrics=tuple(METRICS[name] for name in table.metrics),
        rows=tuple(
            (", ".join(labels), tuple(_build_box(table, row, column, found) for column in range(len(table.cells[row]))))
            for row, labels in enumerate(list_row_labels(table))
        ),
        seeds=describe_seeds(table),
        worst=describe_worst(table),
        source=read_published_numbers()[sweep.published]["source"] if sweep.published else "",
        compared=Counter(
            word for line in table.cells for cell in line for name in table.metrics if (word := cell.compared(name))
        ),
    )


def _build_heads(table: SweepTable) -> tuple[tuple[str, tuple[Head, ...]], ...]:
    """Build one line of headings per setting, each above all columns that agree so far."""
    lines = []
    for level, name in enumerate(table.column_names):
        alike = Counter(labels[: level + 1] for labels in table.column_labels)
        heads = tuple(
            Head(name_value(name, labels[level]), len(table.metrics) * count) for labels, count in alike.items()
        )
        lines.append((_shorten_path(name), heads))
    return tuple(lines)


def _shorten_path(path: str) -> str:
    return path.removesuffix(".name")


def _build_box(table: SweepTable, row: int, column: int, indices: Mapping[str, int | None]) -> Box:
    cell = table.cells[row][column]
    best = (row, column) in table.best
    reasons = [*(f"{name} failed: {sentence}" for name, sentence in cell.failed.items()), *cell.broken]
    return Box(
        numbers=tuple(_format_number(cell, name, best and name == table.metrics[0]) for name in table.metrics),
        runs=tuple(index for name in cell.runs if (index := indices.get(name)) is not None),
        missing=cell.missing(),
        reason="; ".join(reasons) or ("not finished" if cell.missing() else ""),
    )


def _format_number(cell: Cell, metric: str, best: bool) -> Number:
    mean, spread, published = cell.mean(metric), cell.spread(metric), cell.published.get(metric)
    difference, compared = cell.difference(metric), cell.compared(metric)
    return Number(
        mean="" if mean is None else format_metric(metric, mean, DIGITS),
        spread="" if spread is None else format_metric(metric, spread, DIGITS),
        published="" if published is None else format_metric(metric, published, DIGITS),
        difference="" if difference is None else _add_sign(format_metric(metric, difference, DIGITS)),
        compared=compared if compared and compared != "alike" else "",
        best=best,
        worst=cell.worst.get(metric, ""),
    )


def _add_sign(text: str) -> str:
    """Add a sign to a difference, unless it rounds to zero; minus is the typographic one."""
    if float(text) == 0:
        return text.removeprefix("-")
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"  # noqa: RUF001


def describe_agreement(compared: Counter[str]) -> str:
    """Say in a sentence how many of the published numbers are met."""
    if not compared:
        return ""
    met = f"{compared['alike']} of {compared.total()} published numbers are met within {100 * MAX_DIFFERENCE:g} points"
    further = ", ".join(f"{compared[word]} {word}" for word in ("worse", "better") if compared[word])
    return f"{met}; further off: {further}." if further else f"{met}."
