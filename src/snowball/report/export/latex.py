"""Grids as tables in LaTeX; whatever names hold is text in them."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from snowball.report.cell_text import (
    CellText,
    format_cells,
    list_column_headings,
    list_column_labels,
    list_columns,
    list_row_headings,
    write_legend,
)
from snowball.report.runs import ABSENT
from snowball.report.tables import SweepTable

ESCAPES = {
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


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is; for letters that it may not know there are question marks."""
    return "".join(ESCAPES.get(letter) or (letter if TYPESET.match(letter) else "?") for letter in text)


def format_latex(grid: SweepTable) -> str:
    """A table for a paper, with rules of the package booktabs."""
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\footnotesize\setlength\tabcolsep{3pt}",
        rf"\begin{{tabular}}{{{'l' * len(grid.row_names)}{'r' * len(list_columns(grid))}}}",
        r"\toprule",
        *_format_heads(grid),
        r"\midrule",
        *_format_rows(grid),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{escape_latex(grid.title)}. {escape_latex(write_legend(grid))}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _format_heads(grid: SweepTable) -> Iterator[str]:
    """A line a path of the columns, each label over all columns that share it, then a line of metrics."""
    for level in range(1, len(grid.column_names) + 1):
        labels, rules, start = [""] * len(grid.row_names), [], len(grid.row_names) + 1
        for shared, columns in groupby(texts[:level] for texts in list_column_labels(grid)):
            end = start + len(list(columns)) * len(grid.metrics)
            labels.append(rf"\multicolumn{{{end - start}}}{{c}}{{{escape_latex(shared[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{end - 1}}}")
            start = end
        yield _join_line(labels)
        yield " ".join(rules)
    yield _join_line(map(escape_latex, [*list_row_headings(grid), *(short for _, short in list_column_headings(grid))]))


def _format_rows(grid: SweepTable) -> Iterator[str]:
    """A line a row, with space where the first label of several changes."""
    former = grid.row_labels[0][0]
    for labels, line in zip(grid.row_labels, format_cells(grid), strict=True):
        if len(labels) > 1 and labels[0] != former:
            yield r"\addlinespace"
        former = labels[0]
        yield _join_line([*map(escape_latex, labels), *map(_format_cell, line)])


def _join_line(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


def _format_cell(entry: CellText) -> str:
    mean, rest = escape_latex(entry.mean), escape_latex(entry.rest)
    return (rf"\textbf{{{mean}}} {rest}" if entry.best else f"{mean} {rest}").rstrip()
