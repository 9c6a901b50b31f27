"""Tables of sweeps as CSV, one line per number."""

import csv
from io import StringIO

from snowball.report.cell_text import list_columns
from snowball.report.tables import Cell, SweepTable


def format_csv(table: SweepTable) -> str:
    """Format a table as CSV: one line per cell and metric, in fractions, seconds and rounds."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = (
        "metric",
        "mean",
        "spread",
        "n",
        "expected",
        "published",
        "runs",
        *([f"worst {table.worst}"] if table.worst else []),
    )
    writer.writerow([*map(escape_formula, [*table.row_names, *table.column_names]), *numbers])
    for labels, line in zip(table.row_labels, table.cells, strict=True):
        for column, metric in list_columns(table):
            settings = map(escape_formula, [*labels, *table.column_labels[column]])
            worst = [escape_formula(line[column].worst.get(metric, ""))] if table.worst else []
            writer.writerow([*settings, metric, *_format_numbers(line[column], metric), *worst])
    return file.getvalue()


def _format_numbers(cell: Cell, metric: str) -> list[str]:
    numbers = (cell.mean(metric), cell.spread(metric), cell.published.get(metric))
    mean, spread, published = ("" if value is None else f"{value:.6g}" for value in numbers)
    counts = str(len(cell.values.get(metric, []))), str(cell.expected)
    return [mean, spread, *counts, published, escape_formula(" ".join(cell.runs))]


def escape_formula(text: str) -> str:
    """Escape text so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
