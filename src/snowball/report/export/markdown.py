"""Tables of sweeps as Markdown."""

from snowball.report.cell_text import Entry, column_headings, entries, legend, places, row_headings
from snowball.report.runs import markdown_text
from snowball.report.tables import Grid


def as_markdown(grid: Grid) -> str:
    """A table for a README."""
    heads = [*row_headings(grid), *(" ".join(filter(None, texts)) for texts in column_headings(grid))]
    ruler = ["---"] * len(grid.row_names) + ["---:"] * len(places(grid))
    lines = [list(map(markdown_text, heads)), ruler]
    for labels, line in zip(grid.row_labels, entries(grid), strict=True):
        lines.append([*map(markdown_text, labels), *map(_markdown_entry, line)])
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"# {markdown_text(grid.title)}\n\n{body}\n{legend(grid)}\n"


def _markdown_entry(entry: Entry) -> str:
    mean, rest = markdown_text(entry.mean), markdown_text(entry.rest)
    return (f"**{mean}** {rest}" if entry.best else f"{mean} {rest}").rstrip()
