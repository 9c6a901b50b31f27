"""Tables of sweeps as Markdown."""

from snowball.report.cell_text import (
    CellText,
    format_cells,
    list_column_headings,
    list_columns,
    list_row_headings,
    write_legend,
)
from snowball.report.runs import escape_markdown
from snowball.report.tables import SweepTable


def format_markdown(grid: SweepTable) -> str:
    """A table for a README."""
    heads = [*list_row_headings(grid), *(" ".join(filter(None, texts)) for texts in list_column_headings(grid))]
    ruler = ["---"] * len(grid.row_names) + ["---:"] * len(list_columns(grid))
    lines = [list(map(escape_markdown, heads)), ruler]
    for labels, line in zip(grid.row_labels, format_cells(grid), strict=True):
        lines.append([*map(escape_markdown, labels), *map(_format_cell, line)])
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"# {escape_markdown(grid.title)}\n\n{body}\n{write_legend(grid)}\n"


def _format_cell(entry: CellText) -> str:
    mean, rest = escape_markdown(entry.mean), escape_markdown(entry.rest)
    return (f"**{mean}** {rest}" if entry.best else f"{mean} {rest}").rstrip()
