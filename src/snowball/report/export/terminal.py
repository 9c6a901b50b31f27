"""Tables of sweeps on a terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from snowball.report.cell_text import CellText, format_cells, list_column_headings, list_row_headings, list_row_labels
from snowball.report.tables import SweepTable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


EDGE_CHARS = 3
"""The characters around a column of a terminal table: two spaces and a line."""


def build_terminal_tables(table: SweepTable, width: int) -> Iterator["Table"]:
    """Split a table into as many as needed to fit the terminal; no text in them is read as markup."""
    from rich.table import Column, Table
    from rich.text import Text

    lines = format_cells(table)
    heads = [*list_row_headings(table), *("\n".join(filter(None, texts)) for texts in list_column_headings(table))]
    left = len(table.row_names)
    for fitting in _fit_columns(table, lines, width):
        result = Table(*(Column(Text(head)) for head in [*heads[:left], *(heads[left + column] for column in fitting)]))
        for labels, line in zip(list_row_labels(table), lines, strict=True):
            result.add_row(*map(Text, labels), *(_style_cell(line[column]) for column in fitting))
        yield result


def _fit_columns(table: SweepTable, lines: Sequence[Sequence[CellText]], width: int) -> Iterator[range]:
    """Yield ranges of columns that fit next to the row labels: at least one column, with all its metrics together."""
    texts = zip(list_column_headings(table), *([(entry.text(),) for entry in line] for line in lines), strict=True)
    widths = [max(len(text) for group in column for text in group) + EDGE_CHARS for column in texts]
    labels = zip(list_row_headings(table), *list_row_labels(table), strict=True)
    room = width - 1 - sum(max(map(len, column)) + EDGE_CHARS for column in labels)
    start, step = 0, len(table.metrics)
    for end in range(step, len(widths) + 1, step):
        if end == len(widths) or sum(widths[start : end + step]) > room:
            yield range(start, end)
            start = end


def _style_cell(entry: CellText) -> "Text":
    from rich.text import Text

    return Text.assemble((entry.mean, "bold" if entry.best else ""), f" {entry.rest}".rstrip(), style=entry.colour)
