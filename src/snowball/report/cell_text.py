"""A grid's numbers in words, for every format that they are shown in."""

from dataclasses import dataclass
from itertools import product

from snowball.report.runs import ABSENT
from snowball.report.sweeps import METRICS
from snowball.report.tables import MAX_DIFFERENCE, SweepTable

COLOURS = {"worse": "red", "better": "green"}
"""How a mean looks that is far from the published number."""


@dataclass(frozen=True)
class CellText:
    """A metric of a cell in words.

    Attributes:
        mean: over the runs; where there is no number, how many runs there are.
        rest: what stands behind: the spread, the published number, how many runs there are if some are missing.
        best: whether it is the best of the realistic approaches.
        colour: red for far worse than published, green for far better.
    """

    mean: str
    rest: str
    best: bool = False
    colour: str = ""

    def text(self) -> str:
        """Both, as one."""
        return f"{self.mean} {self.rest}".rstrip()


def format_cells(grid: SweepTable) -> list[list[CellText]]:
    """A line a row, with an entry a column and metric."""
    return [[_format_cell(grid, row, *place) for place in list_columns(grid)] for row in range(len(grid.cells))]


def list_columns(grid: SweepTable) -> list[tuple[int, str]]:
    """A column and a metric for each column of numbers."""
    return list(product(range(len(grid.column_labels)), grid.metrics))


def _format_cell(grid: SweepTable, row: int, column: int, metric: str) -> CellText:
    cell, first = grid.cells[row][column], metric == grid.metrics[0]
    mean, spread, published = cell.mean(metric), cell.spread(metric), cell.published.get(metric)
    missing = cell.missing() if first else ""
    brackets = "" if published is None else f"({format_metric(metric, published, 2)})"
    if mean is None:
        return CellText(missing or ABSENT, brackets)
    rest = ("" if spread is None else f"± {format_metric(metric, spread)}", brackets, missing and f"[{missing}]")
    colour = COLOURS.get(cell.compared(metric) or "", "")
    return CellText(
        format_metric(metric, mean), " ".join(filter(None, rest)), first and (row, column) in grid.best, colour
    )


def format_metric(metric: str, value: float, digits: int = 1) -> str:
    """A metric's number as people read it: per cent, or seconds."""
    return f"{value:.3g}" if METRICS[metric].timed else f"{100 * value:.{digits}f}"


def write_legend(grid: SweepTable) -> str:
    """What the numbers of a table are."""
    per_cent = "" if all(METRICS[name].timed for name in grid.metrics) else ", in per cent"
    published = any(cell.published for line in grid.cells for cell in line)
    beside = ", and the published number in brackets" if published else ""
    sentences = (
        f"Mean ± standard deviation over seeds{per_cent}{beside}.",
        "; ".join(f"{METRICS[name].short}: {METRICS[name].label}" for name in grid.metrics) + ".",
        "Bold: the best realistic approach." if grid.best else "",
    )
    return " ".join(filter(None, sentences))


def write_terminal_legend(grid: SweepTable) -> str:
    """What numbers and colours of a terminal's table are."""
    points = f"over {100 * MAX_DIFFERENCE:g} points"
    far = f"Red: {points} worse than published; green: {points} better."
    compared = any(cell.compared(name) for line in grid.cells for cell in line for name in grid.metrics)
    return f"{write_legend(grid)} {far}" if compared else write_legend(grid)


def list_row_headings(grid: SweepTable) -> list[str]:
    """What the rows' labels are of."""
    return [path.removesuffix(".name") for path in grid.row_names]


def list_column_labels(grid: SweepTable) -> list[tuple[str, ...]]:
    """A heading a column and path: a name alone, and any other value with what it is of, as `alpha 0.5`."""
    kinds = ["" if path.endswith(".name") else f"{path.rpartition('.')[2]} " for path in grid.column_names]
    return [tuple(map("".join, zip(kinds, labels, strict=True))) for labels in grid.column_labels]


def list_column_headings(grid: SweepTable) -> list[tuple[str, str]]:
    """The labels and the metric over each column of numbers."""
    texts = list_column_labels(grid)
    return [(" ".join(texts[column]), METRICS[metric].short) for column, metric in list_columns(grid)]
