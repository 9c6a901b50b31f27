"""Tables of sweeps as Markdown."""

from snowball.report.cell_text import (
    CellText,
    format_cells,
    list_column_headings,
    list_columns,
    list_row_headings,
    list_row_labels,
    write_legend,
)
from snowball.report.runs import escape_markdown
from snowball.report.tables import SweepTable


def format_markdown(table: SweepTable) -> str:
    """Format a table as Markdown."""
    heads = [*list_row_headings(table), *(" ".join(filter(None, texts)) for texts in list_column_headings(table))]
    ruler = ["---"] * len(table.row_names) + ["---:"] * len(list_columns(table))
    lines = [list(map(escape_markdown, heads)), ruler]
    for labels, line in zip(list_row_labels(table), format_cells(table), strict=True):
        lines.append([*map(escape_markdown, labels), *map(_format_cell, line)])
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"# {escape_markdown(table.title)}\n\n{body}\n{write_legend(table)}\n"


def _format_cell(entry: CellText) -> str:
    mean, rest = escape_markdown(entry.mean), escape_markdown(entry.rest)
    return (f"**{mean}** {rest}" if entry.best else f"{mean} {rest}").rstrip()
