"""Grids as text: on a terminal, as CSV with a line a number, and as tables in Markdown and in LaTeX."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from snowball.errors import RunError
from snowball.records import write_bytes
from snowball.report.entries import Entry, column_headings, entries, legend, places, row_headings
from snowball.report.grids import Cell, Grid, grid_of
from snowball.report.latex import as_latex
from snowball.report.sweeps import Sweep
from snowball.report.table import markdown_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

EDGES = 3
"""Characters around a column of a terminal's table: two spaces and a line."""


def terminal_tables(grid: Grid, width: int) -> Iterator["Table"]:
    """The grid in as many tables as it takes to fit a terminal; nothing in them is markup."""
    from rich.table import Column, Table
    from rich.text import Text

    lines = entries(grid)
    heads = [*row_headings(grid), *("\n".join(filter(None, texts)) for texts in column_headings(grid))]
    left = len(grid.row_names)
    for fitting in _fitting(grid, lines, width):
        result = Table(*(Column(Text(head)) for head in [*heads[:left], *(heads[left + place] for place in fitting)]))
        for labels, line in zip(grid.row_labels, lines, strict=True):
            result.add_row(*map(Text, labels), *(_styled(line[place]) for place in fitting))
        yield result


def _fitting(grid: Grid, lines: Sequence[Sequence[Entry]], width: int) -> Iterator[range]:
    """Places that fit side by side behind the rows' labels: whole columns, and at least one."""
    texts = zip(column_headings(grid), *([(entry.text(),) for entry in line] for line in lines), strict=True)
    widths = [max(len(text) for group in column for text in group) + EDGES for column in texts]
    labels = zip(row_headings(grid), *grid.row_labels, strict=True)
    room = width - 1 - sum(max(map(len, column)) + EDGES for column in labels)
    start, step = 0, len(grid.metrics)
    for end in range(step, len(widths) + 1, step):
        if end == len(widths) or sum(widths[start : end + step]) > room:
            yield range(start, end)
            start = end


def _styled(entry: Entry) -> "Text":
    from rich.text import Text

    return Text.assemble((entry.mean, "bold" if entry.best else ""), f" {entry.rest}".rstrip(), style=entry.colour)


def as_csv(grid: Grid) -> str:
    """A line a cell and metric, in fractions and seconds."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = ("metric", "mean", "spread", "n", "expected", "published", "runs")
    writer.writerow([*map(_harmless, [*grid.row_names, *grid.column_names]), *numbers])
    for labels, line in zip(grid.row_labels, grid.cells, strict=True):
        for column, metric in places(grid):
            place = map(_harmless, [*labels, *grid.column_labels[column]])
            writer.writerow([*place, metric, *_csv_numbers(line[column], metric)])
    return file.getvalue()


def _csv_numbers(cell: Cell, metric: str) -> list[str]:
    numbers = (cell.mean(metric), cell.spread(metric), cell.published.get(metric))
    mean, spread, published = ("" if value is None else f"{value:.6g}" for value in numbers)
    counts = str(len(cell.values.get(metric, []))), str(cell.expected)
    return [mean, spread, *counts, published, _harmless(" ".join(cell.runs))]


def _harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


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


EXPORTS: dict[str, Callable[[Grid], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}
"""What a grid is written as, by the ending of the file."""


def write_exports(sweeps: Sequence[Sweep], folder: str | Path) -> list[Path]:
    """Write the table of every sweep in every format, and say which files there are now."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be used: {error.strerror or error}") from error
    written = []
    for sweep, name in zip(sweeps, file_names([sweep.name for sweep in sweeps]), strict=True):
        grid = grid_of(sweep)
        for ending, export in EXPORTS.items():
            written.append(Path(folder) / f"{name}.{ending}")
            write_bytes(written[-1], export(grid).encode())
    return written


def file_names(names: Sequence[str]) -> list[str]:
    """Names that are files' in one folder, however odd the names are, each another."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:100]
        numbered = (f"{plain}-{number}" for number in count(2))
        found.append(next(each for each in chain([plain], numbered) if each not in found))
    return found
