"""A sweep as a table: mean and spread over the seeds in every cell, next to the published number."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal

from snowball.records.text import escape_text
from snowball.report.runs import ABSENT
from snowball.report.sweeps import METRICS, Run, Sweep, choose_layout, locate_run, read_published_numbers

UNREALISTIC = ("ideal", "fedavg")
"""The approach that knows who is malicious, and the one without a defense."""

MAX_DIFFERENCE = 0.1
"""The largest difference from the published number that counts as alike: ten points."""


@dataclass(frozen=True)
class Cell:
    """The runs that differ only in their seed.

    Attributes:
        values: by metric, the numbers of the runs that have it.
        runs: names of the finished runs.
        expected: how many runs the sweep asks for.
        published: the paper's numbers by metric.
        at: the settings that all the runs share.
        failed: the sentences of the runs that failed, by name.
        broken: the sentences of the runs that cannot be used.
        worst: by metric, the value of the setting whose worst value a table shows; empty without such a setting.
    """

    values: dict[str, list[float]]
    runs: list[str]
    expected: int
    published: dict[str, float]
    at: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    worst: dict[str, str] = field(default_factory=dict)

    def mean(self, metric: str) -> float | None:
        """Return the mean over the runs; None if there is no number."""
        values = self.values.get(metric)
        return fmean(values) if values else None

    def spread(self, metric: str) -> float | None:
        """Return the sample standard deviation over the runs; None for fewer than two."""
        values = self.values.get(metric, [])
        return stdev(values) if len(values) > 1 else None

    def difference(self, metric: str) -> float | None:
        """Return the mean minus the published number; None unless both exist."""
        mean, published = self.mean(metric), self.published.get(metric)
        return None if mean is None or published is None else mean - published

    def compared(self, metric: str) -> Literal["better", "worse", "alike"] | None:
        """Compare the mean with the published number: better or worse by over ten points, or alike."""
        difference = self.difference(metric)
        if difference is None:
            return None
        if abs(difference) <= MAX_DIFFERENCE:
            return "alike"
        return "better" if (difference > 0) == METRICS[metric].higher_is_better else "worse"

    def missing(self) -> str:
        """Say how many of the runs there are, if some are missing."""
        if len(self.runs) == self.expected:
            return ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{len(self.runs)} of {self.expected}{failed}"


@dataclass(frozen=True)
class SweepTable:
    """A table of cells.

    Attributes:
        row_names: paths of the settings that the rows differ in.
        row_labels: one text per row and path.
        metrics: the names of the numbers in every cell, the most important first.
        cells: by row, then by column.
        best: (row, column) of the best realistic approach by the first metric, if there are several.
        worst: the path of the setting whose worst value every number shows; empty if there is none.
    """

    title: str
    row_names: list[str]
    row_labels: list[tuple[str, ...]]
    column_names: list[str]
    column_labels: list[tuple[str, ...]]
    metrics: list[str]
    cells: list[list[Cell]]
    best: frozenset[tuple[int, int]]
    worst: str = ""


def build_sweep_table(sweep: Sweep) -> SweepTable:
    """Build the table that the sweep's [table] asks for, or one row per defense."""
    row_names, column_names, metrics = choose_layout(sweep)
    worst = (sweep.table or {}).get("worst") or ""
    rows, columns = _order_labels(sweep.runs, row_names), _order_labels(sweep.runs, column_names)
    numbers = read_published_numbers()[sweep.published]["numbers"] if sweep.published else []
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in sweep.runs:
        groups.setdefault((locate_run(run, row_names), locate_run(run, column_names)), []).append(run)
    cells = [
        [_build_cell(groups.get((row, column), []), metrics, numbers, worst) for column in columns] for row in rows
    ]
    return SweepTable(
        title=sweep.title,
        row_names=list(map(escape_text, row_names)),
        row_labels=list(rows.values()),
        column_names=list(map(escape_text, column_names)),
        column_labels=list(columns.values()),
        metrics=metrics,
        cells=cells,
        best=_find_best(cells, metrics[0]),
        worst=escape_text(worst),
    )


def _order_labels(runs: Sequence[Run], paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the labels of every row or column by key: the first path varies slowest, values as they first appear."""
    ranks = [
        {key: rank for rank, key in enumerate(dict.fromkeys(locate_run(run, [path]) for run in runs))} for path in paths
    ]
    found = {locate_run(run, paths): run for run in runs}

    def order(key: str) -> list[int]:
        return [rank[locate_run(found[key], [path])] for rank, path in zip(ranks, paths, strict=True)]

    return {key: tuple(_format_label(found[key].at.get(path)) for path in paths) for key in sorted(found, key=order)}


def _format_label(value: Any) -> str:
    """Format a setting's value as a heading."""
    return ABSENT if value is None else escape_text(value if isinstance(value, str) else json.dumps(value))


def _build_cell(runs: Sequence[Run], metrics: Sequence[str], numbers: Iterable[dict[str, Any]], worst: str) -> Cell:
    finished = [run for run in runs if run.state == "finished"]
    at = _find_shared([run.at for run in runs])
    chosen = {name: _find_worst(finished, name, worst) for name in metrics}
    return Cell(
        values={name: values for name, (_, values) in chosen.items()},
        runs=[run.name for run in finished],
        expected=len(runs),
        published=_find_published(at, metrics, numbers),
        at=at,
        failed={run.name: run.sentence for run in runs if run.state == "failed"},
        broken=tuple(run.sentence for run in runs if run.state == "broken"),
        worst={name: label for name, (label, values) in chosen.items() if worst and values},
    )


def _find_worst(runs: Iterable[Run], metric: str, path: str) -> tuple[str, list[float]]:
    """Return the setting's value with the worst mean over seeds, and its numbers; all numbers if there is no path."""
    groups: dict[str, list[float]] = {}
    for run in runs:
        if metric in run.metrics:
            groups.setdefault(_format_label(run.at.get(path)), []).append(run.metrics[metric])
    choose = min if METRICS[metric].higher_is_better else max
    return choose(groups.items(), key=lambda group: fmean(group[1]), default=("", []))


def _find_shared(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings that all runs share."""
    first = settings[0] if settings else {}
    return {path: value for path, value in first.items() if all(at.get(path) == value for at in settings)}


def _find_published(at: dict[str, Any], metrics: Sequence[str], numbers: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the paper's numbers for these settings."""
    for entry in numbers:
        if entry["at"].items() <= at.items():
            return {name: entry[name] for name in metrics if name in entry}
    return {}


def _find_best(cells: Sequence[Sequence[Cell]], metric: str) -> frozenset[tuple[int, int]]:
    """Find the cells with the best means, including ties; cells compete if they differ only in their defense."""
    rivals: dict[str, dict[tuple[int, int], float]] = {}
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            mean = cell.mean(metric)
            if mean is not None and cell.at.get("defense.name", "ideal") not in UNREALISTIC:
                rivals.setdefault(_describe_conditions(cell), {})[row, column] = mean
    choose = max if METRICS[metric].higher_is_better else min
    contests = (means for means in rivals.values() if len(means) > 1)
    return frozenset(at for means in contests for at, mean in means.items() if mean == choose(means.values()))


def _describe_conditions(cell: Cell) -> str:
    """Return a key of a cell's settings except the defense's: cells with the same key compete."""
    own = ("defense.", "seed")
    return json.dumps({path: value for path, value in cell.at.items() if not path.startswith(own)}, sort_keys=True)
