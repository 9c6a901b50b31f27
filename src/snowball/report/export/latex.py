"""Grids as tables in LaTeX; whatever names hold is text in them."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from snowball.report.cell_text import Entry, column_headings, column_texts, entries, legend, places, row_headings
from snowball.report.runs import ABSENT
from snowball.report.tables import Grid

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
        rf"\begin{{tabular}}{{{'l' * len(grid.row_names)}{'r' * len(places(grid))}}}",
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
    yield _latex_line(map(latex_text, [*row_headings(grid), *(short for _, short in column_headings(grid))]))


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
