"""Tables of sweeps on a terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from snowball.report.cell_text import CellText, format_cells, list_column_headings, list_row_headings
from snowball.report.tables import SweepTable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


EDGE_CHARS = 3
"""Characters around a column of a terminal's table: two spaces and a line."""


def build_terminal_tables(grid: SweepTable, width: int) -> Iterator["Table"]:
    """The grid in as many tables as it takes to fit a terminal; nothing in them is markup."""
    from rich.table import Column, Table
    from rich.text import Text

    lines = format_cells(grid)
    heads = [*list_row_headings(grid), *("\n".join(filter(None, texts)) for texts in list_column_headings(grid))]
    left = len(grid.row_names)
    for fitting in _fit_columns(grid, lines, width):
        result = Table(*(Column(Text(head)) for head in [*heads[:left], *(heads[left + place] for place in fitting)]))
        for labels, line in zip(grid.row_labels, lines, strict=True):
            result.add_row(*map(Text, labels), *(_style_cell(line[place]) for place in fitting))
        yield result


def _fit_columns(grid: SweepTable, lines: Sequence[Sequence[CellText]], width: int) -> Iterator[range]:
    """Places that fit side by side behind the rows' labels: whole columns, and at least one."""
    texts = zip(list_column_headings(grid), *([(entry.text(),) for entry in line] for line in lines), strict=True)
    widths = [max(len(text) for group in column for text in group) + EDGE_CHARS for column in texts]
    labels = zip(list_row_headings(grid), *grid.row_labels, strict=True)
    room = width - 1 - sum(max(map(len, column)) + EDGE_CHARS for column in labels)
    start, step = 0, len(grid.metrics)
    for end in range(step, len(widths) + 1, step):
        if end == len(widths) or sum(widths[start : end + step]) > room:
            yield range(start, end)
            start = end


def _style_cell(entry: CellText) -> "Text":
    from rich.text import Text

    return Text.assemble((entry.mean, "bold" if entry.best else ""), f" {entry.rest}".rstrip(), style=entry.colour)
