"""Tables of sweeps as LaTeX; names are escaped."""

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
    list_row_labels,
    write_legend,
)
from snowball.report.runs import ABSENT
from snowball.report.tables import SweepTable

ESCAPES = {
    **{letter: f"\\{letter}" for letter in "{}$&#_%"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # the line break before them would take them as its arguments
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
"""The replacements of characters that are special in LaTeX or missing from it."""

TYPESET = re.compile(r"[ -~À-ÏÑ-ÖØ-Ýß-ïñ-öø-ýÿ]")
"""The characters that every LaTeX can typeset."""


def escape_latex(text: str) -> str:
    """Escape text for LaTeX; characters that it may not know become question marks."""
    return "".join(ESCAPES.get(letter) or (letter if TYPESET.match(letter) else "?") for letter in text)


def format_latex(table: SweepTable) -> str:
    """Format a table as LaTeX, with rules of the package booktabs."""
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering\footnotesize\setlength\tabcolsep{3pt}",
        rf"\begin{{tabular}}{{{'l' * len(table.row_names)}{'r' * len(list_columns(table))}}}",
        r"\toprule",
        *_format_heads(table),
        r"\midrule",
        *_format_rows(table),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{escape_latex(table.title)}. {escape_latex(write_legend(table))}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _format_heads(table: SweepTable) -> Iterator[str]:
    """Yield one line per path of the columns, each label above all columns that share it, then a line of metrics."""
    for level in range(1, len(table.column_names) + 1):
        labels, rules, start = [""] * len(table.row_names), [], len(table.row_names) + 1
        for shared, columns in groupby(texts[:level] for texts in list_column_labels(table)):
            end = start + len(list(columns)) * len(table.metrics)
            labels.append(rf"\multicolumn{{{end - start}}}{{c}}{{{escape_latex(shared[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{end - 1}}}")
            start = end
        yield _join_line(labels)
        yield " ".join(rules)
    yield _join_line(
        map(escape_latex, [*list_row_headings(table), *(short for _, short in list_column_headings(table))])
    )


def _format_rows(table: SweepTable) -> Iterator[str]:
    """Yield one line per row, with space where the first of several labels changes."""
    former = list_row_labels(table)[0][0]
    for labels, line in zip(list_row_labels(table), format_cells(table), strict=True):
        if len(labels) > 1 and labels[0] != former:
            yield r"\addlinespace"
        former = labels[0]
        yield _join_line([*map(escape_latex, labels), *map(_format_cell, line)])


def _join_line(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


def _format_cell(entry: CellText) -> str:
    mean, rest = escape_latex(entry.mean), escape_latex(entry.rest)
    return (rf"\textbf{{{mean}}} {rest}" if entry.best else f"{mean} {rest}").rstrip()
