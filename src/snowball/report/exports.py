"""Grids as text: on a terminal, as CSV with a line a number, and as tables in Markdown and in LaTeX."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, count, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING

from snowball.errors import RunError
from snowball.records import write_bytes
from snowball.report.grids import FAR, Cell, Grid, grid_of
from snowball.report.sweeps import METRICS, Sweep
from snowball.report.table import ABSENT, markdown_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

EDGES = 3
"""Characters around a column of a terminal's table: two spaces and a line."""

COLOURS = {"worse": "red", "better": "green"}
"""How a mean looks that is far from the published number."""


@dataclass(frozen=True)
class Entry:
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


def entries(grid: Grid) -> list[list[Entry]]:
    """A line a row, with an entry a column and metric."""
    return [[_entry(grid, row, *place) for place in _places(grid)] for row in range(len(grid.cells))]


def _places(grid: Grid) -> list[tuple[int, str]]:
    return list(product(range(len(grid.column_labels)), grid.metrics))


def _entry(grid: Grid, row: int, column: int, metric: str) -> Entry:
    cell, first = grid.cells[row][column], metric == grid.metrics[0]
    mean, spread, published = cell.mean(metric), cell.spread(metric), cell.published.get(metric)
    missing = cell.missing() if first else ""
    brackets = "" if published is None else f"({number(metric, published, 2)})"
    if mean is None:
        return Entry(missing or ABSENT, brackets)
    rest = ("" if spread is None else f"± {number(metric, spread)}", brackets, missing and f"[{missing}]")
    colour = COLOURS.get(cell.compared(metric) or "", "")
    return Entry(number(metric, mean), " ".join(filter(None, rest)), first and (row, column) in grid.best, colour)


def number(metric: str, value: float, digits: int = 1) -> str:
    """A metric's number as people read it: per cent, or seconds."""
    return f"{value:.3g}" if METRICS[metric].timed else f"{100 * value:.{digits}f}"


def legend(grid: Grid) -> str:
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


def key(grid: Grid) -> str:
    """What numbers and colours of a terminal's table are."""
    far = f"Red: over {100 * FAR:g} points worse than published; green: over {100 * FAR:g} points better."
    compared = any(cell.compared(name) for line in grid.cells for cell in line for name in grid.metrics)
    return f"{legend(grid)} {far}" if compared else legend(grid)


def _row_headings(grid: Grid) -> list[str]:
    return [path.removesuffix(".name") for path in grid.row_names]


def column_texts(grid: Grid) -> list[tuple[str, ...]]:
    """A heading a column and path: a name alone, and any other value with what it is of, as `alpha 0.5`."""
    kinds = ["" if path.endswith(".name") else f"{path.rpartition('.')[2]} " for path in grid.column_names]
    return [tuple(map("".join, zip(kinds, labels, strict=True))) for labels in grid.column_labels]


def _column_headings(grid: Grid) -> list[tuple[str, str]]:
    texts = column_texts(grid)
    return [(" ".join(texts[column]), METRICS[metric].short) for column, metric in _places(grid)]


def terminal_tables(grid: Grid, width: int) -> Iterator["Table"]:
    """The grid in as many tables as it takes to fit a terminal; nothing in them is markup."""
    from rich.table import Column, Table
    from rich.text import Text

    lines = entries(grid)
    heads = [*_row_headings(grid), *("\n".join(filter(None, texts)) for texts in _column_headings(grid))]
    left = len(grid.row_names)
    for places in _fitting(grid, lines, width):
        result = Table(*(Column(Text(head)) for head in [*heads[:left], *(heads[left + place] for place in places)]))
        for labels, line in zip(grid.row_labels, lines, strict=True):
            result.add_row(*map(Text, labels), *(_styled(line[place]) for place in places))
        yield result


def _fitting(grid: Grid, lines: Sequence[Sequence[Entry]], width: int) -> Iterator[range]:
    """Places that fit side by side behind the rows' labels: whole columns, and at least one."""
    texts = zip(_column_headings(grid), *([(entry.text(),) for entry in line] for line in lines), strict=True)
    widths = [max(len(text) for group in column for text in group) + EDGES for column in texts]
    labels = zip(_row_headings(grid), *grid.row_labels, strict=True)
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
        for column, metric in _places(grid):
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
    heads = [*_row_headings(grid), *(" ".join(filter(None, texts)) for texts in _column_headings(grid))]
    ruler = ["---"] * len(grid.row_names) + ["---:"] * len(_places(grid))
    lines = [list(map(markdown_text, heads)), ruler]
    for labels, line in zip(grid.row_labels, entries(grid), strict=True):
        lines.append([*map(markdown_text, labels), *map(_markdown_entry, line)])
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"# {markdown_text(grid.title)}\n\n{body}\n{legend(grid)}\n"


def _markdown_entry(entry: Entry) -> str:
    mean, rest = markdown_text(entry.mean), markdown_text(entry.rest)
    return (f"**{mean}** {rest}" if entry.best else f"{mean} {rest}").rstrip()


LATEX = {
    **{letter: f"\\{letter}" for letter in "{}$&#_%"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # which the end of the line before would take for its own
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    ABSENT: "--",
    "…": r"\ldots{}",
}
"""What stands for letters that LaTeX obeys, or lacks."""

TYPESET = re.compile(r"[ -~À-ÏÑ-ÖØ-Ýß-ïñ-öø-ýÿ]")
"""Letters that every LaTeX can set."""


def latex_text(text: str) -> str:
    """Text that LaTeX sets as it is; for letters that it may not know there are question marks."""
    return "".join(LATEX.get(letter) or (letter if TYPESET.match(letter) else "?") for letter in text)


def as_latex(grid: Grid) -> str:
    """A table for a paper, with rules of the package booktabs."""
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\footnotesize\setlength\tabcolsep{3pt}",
        rf"\begin{{tabular}}{{{'l' * len(grid.row_names)}{'r' * len(_places(grid))}}}",
        r"\toprule",
        *_latex_heads(grid),
        r"\midrule",
        *_latex_rows(grid),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_text(grid.title)}. {latex_text(legend(grid))}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_heads(grid: Grid) -> Iterator[str]:
    """A line a path of the columns, each label over all columns that share it, then a line of metrics."""
    for level in range(1, len(grid.column_names) + 1):
        labels, rules, start = [""] * len(grid.row_names), [], len(grid.row_names) + 1
        for shared, columns in groupby(texts[:level] for texts in column_texts(grid)):
            end = start + len(list(columns)) * len(grid.metrics)
            labels.append(rf"\multicolumn{{{end - start}}}{{c}}{{{latex_text(shared[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{end - 1}}}")
            start = end
        yield _latex_line(labels)
        yield " ".join(rules)
    yield _latex_line(map(latex_text, [*_row_headings(grid), *(short for _, short in _column_headings(grid))]))


def _latex_rows(grid: Grid) -> Iterator[str]:
    """A line a row, with space where the first label of several changes."""
    former = grid.row_labels[0][0]
    for labels, line in zip(grid.row_labels, entries(grid), strict=True):
        if len(labels) > 1 and labels[0] != former:
            yield r"\addlinespace"
        former = labels[0]
        yield _latex_line([*map(latex_text, labels), *map(_latex_entry, line)])


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


def _latex_entry(entry: Entry) -> str:
    mean, rest = latex_text(entry.mean), latex_text(entry.rest)
    return (rf"\textbf{{{mean}}} {rest}" if entry.best else f"{mean} {rest}").rstrip()


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
