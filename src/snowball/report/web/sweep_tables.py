"""A sweep's grid as the page shows it: heads that span what they group, and numbers that lead to their runs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from snowball.report.cell_text import format_metric
from snowball.report.run_metrics import METRICS, Metric
from snowball.report.sweeps import Sweep, read_published_numbers
from snowball.report.tables import MAX_DIFFERENCE, Cell, SweepTable, build_table

DIGITS = 2
"""Of a percentage, as the paper prints them."""


@dataclass(frozen=True)
class Head:
    """A heading, and how many columns it stands over."""

    text: str
    span: int


@dataclass(frozen=True)
class Number:
    """A metric in a cell.

    Attributes:
        difference: the mean less the published number, with its sign.
        compared: how they compare in a word, where they are far from each other.
    """

    mean: str
    spread: str
    published: str
    difference: str
    compared: str
    best: bool


@dataclass(frozen=True)
class Box:
    """A cell of the page: a number a metric.

    Attributes:
        runs: the places of its runs in the page's catalogue.
        missing: how many of its runs are there, where some are not.
        reason: why.
    """

    numbers: tuple[Number, ...]
    runs: tuple[int, ...]
    missing: str
    reason: str


@dataclass(frozen=True)
class PaperTable:
    """A table of the page.

    Attributes:
        heads: lines of headings, and the setting that each line is of.
        corner: the settings that the rows are of.
        source: where the published numbers are from.
        compared: how many numbers are "alike", "worse" and "better" than the published ones.
    """

    title: str
    heads: tuple[tuple[str, tuple[Head, ...]], ...]
    corner: str
    metrics: tuple[Metric, ...]
    rows: tuple[tuple[str, tuple[Box, ...]], ...]
    source: str
    compared: Counter[str]

    @property
    def agreement(self) -> str:
        """How many of the published numbers are met."""
        return describe_agreement(self.compared)


def build_paper_table(sweep: Sweep, places: Mapping[Path, int]) -> PaperTable | None:
    """A sweep's table, unless it has a figure alone; `places` are where runs' folders are in the page's catalogue."""
    if sweep.table is None and sweep.figure is not None:
        return None
    grid = build_table(sweep)
    found = {run.name: places.get(run.folder.resolve()) for run in sweep.runs}
    return PaperTable(
        title=grid.title,
        heads=_build_heads(grid),
        corner=", ".join(map(_shorten_path, grid.row_names)),
        metrics=tuple(METRICS[name] for name in grid.metrics),
        rows=tuple(
            (", ".join(labels), tuple(_build_box(grid, row, column, found) for column in range(len(grid.cells[row]))))
            for row, labels in enumerate(grid.row_labels)
        ),
        source=read_published_numbers()[sweep.published]["source"] if sweep.published else "",
        compared=Counter(
            word for line in grid.cells for cell in line for name in grid.metrics if (word := cell.compared(name))
        ),
    )


def _build_heads(grid: SweepTable) -> tuple[tuple[str, tuple[Head, ...]], ...]:
    """A line of headings a setting, each over all the columns that are alike so far."""
    lines = []
    for level, name in enumerate(grid.column_names):
        alike = Counter(labels[: level + 1] for labels in grid.column_labels)
        heads = tuple(Head(labels[level], len(grid.metrics) * count) for labels, count in alike.items())
        lines.append((_shorten_path(name), heads))
    return tuple(lines)


def _shorten_path(path: str) -> str:
    return path.removesuffix(".name")


def _build_box(grid: SweepTable, row: int, column: int, places: Mapping[str, int | None]) -> Box:
    cell = grid.cells[row][column]
    best = (row, column) in grid.best
    reasons = [*(f"{name} failed: {sentence}" for name, sentence in cell.failed.items()), *cell.broken]
    return Box(
        numbers=tuple(_format_number(cell, name, best and name == grid.metrics[0]) for name in grid.metrics),
        runs=tuple(place for name in cell.runs if (place := places.get(name)) is not None),
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
    )


def _add_sign(text: str) -> str:
    """A difference with its sign, minus as typesetters have it; none where it rounds to nothing."""
    if float(text) == 0:
        return text.removeprefix("-")
    return text.replace("-", "−") if text.startswith("-") else f"+{text}"  # noqa: RUF001


def describe_agreement(compared: Counter[str]) -> str:
    """How many of the published numbers are met, in a sentence."""
    if not compared:
        return ""
    met = f"{compared['alike']} of {compared.total()} published numbers are met within {100 * MAX_DIFFERENCE:g} points"
    further = ", ".join(f"{compared[word]} {word}" for word in ("worse", "better") if compared[word])
    return f"{met}; further off: {further}." if further else f"{met}."
