"""The text of a sweep table's cells, headings and legend, for all export formats."""

from dataclasses import dataclass
from itertools import product

from snowball.report.runs import ABSENT
from snowball.report.sweeps import METRICS
from snowball.report.tables import MAX_DIFFERENCE, SweepTable

SETTING_LABELS = {("defense.clusters", "gap"): "our defaults"}
"""Values of settings that have a name of their own."""

COLOURS = {"worse": "red", "better": "green"}
"""The colours of means that are far from the published number."""


@dataclass(frozen=True)
class CellText:
    """A metric of a cell as text.

    Attributes:
        mean: the mean over the runs; if there is no number, how many runs there are.
        rest: the text after it: spread, the worst value of a setting, published number, and how many runs there are if
            some are missing.
        best: whether it is the best realistic approach.
        colour: red for far worse than published, green for far better.
    """

    mean: str
    rest: str
    best: bool = False
    colour: str = ""

    def text(self) -> str:
        """Return mean and rest as one text."""
        return f"{self.mean} {self.rest}".rstrip()


def format_cells(table: SweepTable) -> list[list[CellText]]:
    """Format all cells: one line per row, with one text per column and metric."""
    return [[_format_cell(table, row, *column) for column in list_columns(table)] for row in range(len(table.cells))]


def list_columns(table: SweepTable) -> list[tuple[int, str]]:
    """List the index and the metric of each column of numbers."""
    return list(product(range(len(table.column_labels)), table.metrics))


def _format_cell(table: SweepTable, row: int, column: int, metric: str) -> CellText:
    cell, first = table.cells[row][column], metric == table.metrics[0]
    mean, spread, published = cell.mean(metric), cell.spread(metric), cell.published.get(metric)
    missing = cell.missing() if first else ""
    brackets = "" if published is None else f"({format_metric(metric, published, 2)})"
    if mean is None:
        return CellText(missing or ABSENT, brackets)
    at = f"at {cell.worst[metric]}" if metric in cell.worst else ""
    rest = ("" if spread is None else f"± {format_metric(metric, spread)}", at, brackets, missing and f"[{missing}]")
    colour = COLOURS.get(cell.compared(metric) or "", "")
    return CellText(
        format_metric(metric, mean), " ".join(filter(None, rest)), first and (row, column) in table.best, colour
    )


def format_metric(metric: str, value: float, digits: int = 1) -> str:
    """Format a metric's number in per cent, seconds or rounds."""
    return f"{100 * value:.{digits}f}" if METRICS[metric].unit == "%" else f"{value:.3g}"


def write_legend(table: SweepTable) -> str:
    """Explain the numbers of a table."""
    per_cent = ", in per cent" if any(METRICS[name].unit == "%" for name in table.metrics) else ""
    published = any(cell.published for line in table.cells for cell in line)
    beside = ", and the published number in brackets" if published else ""
    sentences = (
        f"{describe_seeds(table)}{per_cent}{beside}.",
        describe_worst(table),
        "; ".join(f"{METRICS[name].short}: {METRICS[name].label}" for name in table.metrics) + ".",
        "Bold: the best realistic approach." if table.best else "",
    )
    return " ".join(filter(None, sentences))


def describe_seeds(table: SweepTable) -> str:
    """Say what a number is taken over: a mean and its spread only if there are several seeds."""
    spread = any(cell.spread(name) is not None for line in table.cells for cell in line for name in table.metrics)
    return "Mean ± standard deviation over seeds" if spread else "One seed"


def describe_worst(table: SweepTable) -> str:
    """Say that numbers are the worst over a setting; empty if they are not."""
    return f"Each number is that of the worst {table.worst}, which follows it." if table.worst else ""


def write_terminal_legend(table: SweepTable) -> str:
    """Explain the numbers and colours of a table on a terminal."""
    points = f"over {100 * MAX_DIFFERENCE:g} points"
    far = f"Red: {points} worse than published; green: {points} better."
    compared = any(cell.compared(name) for line in table.cells for cell in line for name in table.metrics)
    return f"{write_legend(table)} {far}" if compared else write_legend(table)


def list_row_headings(table: SweepTable) -> list[str]:
    """List the settings that the rows' labels belong to."""
    return [path.removesuffix(".name") for path in table.row_names]


def list_row_labels(table: SweepTable) -> list[tuple[str, ...]]:
    """List one text per row and path."""
    return [tuple(map(name_value, table.row_names, labels)) for labels in table.row_labels]


def list_column_labels(table: SweepTable) -> list[tuple[str, ...]]:
    """List one heading per column and path: a name alone, other values with their setting, such as `alpha 0.5`."""
    return [tuple(map(_write_heading, table.column_names, labels)) for labels in table.column_labels]


def name_value(path: str, label: str) -> str:
    """Return a setting's value as it is shown: some have a name of their own."""
    return SETTING_LABELS.get((path, label), label)


def _write_heading(path: str, label: str) -> str:
    is_name = path.endswith(".name") or (path, label) in SETTING_LABELS
    return name_value(path, label) if is_name else f"{path.rpartition('.')[2]} {label}"


def list_column_headings(table: SweepTable) -> list[tuple[str, str]]:
    """List the labels and the metric above each column of numbers."""
    texts = list_column_labels(table)
    return [(" ".join(texts[column]), METRICS[metric].short) for column, metric in list_columns(table)]
