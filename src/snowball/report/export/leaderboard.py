"""Leaderboards on a terminal, as Markdown and as CSV."""

import csv
from io import StringIO
from typing import TYPE_CHECKING

from snowball.report.export.csv import escape_formula
from snowball.report.leaderboard import COLUMNS, Leaderboard, Score, count_worlds, write_number
from snowball.report.runs import ABSENT, escape_markdown

if TYPE_CHECKING:
    from rich.table import Table


def list_lines(board: Leaderboard) -> list[list[str]]:
    """List the headings, then one line of text per defense."""
    lines = [["defense", *(column.short for column in COLUMNS.values())]]
    for standing in board.standings:
        missing = f" [{standing.missing} missing]" if standing.missing else ""
        numbers = (write_score(standing.scores[key], column.timed) for key, column in COLUMNS.items())
        lines.append([standing.defense + missing, *numbers])
    return lines


def write_score(score: Score, timed: bool) -> str:
    """Write a number and its spread."""
    spread = "" if score.spread is None else f" ± {write_number(score.spread, timed)}"
    return write_number(score.value, timed) + spread or ABSENT


def write_leaderboard_legend(board: Leaderboard) -> str:
    """Explain the numbers of a leaderboard."""
    columns = "; ".join(f"{column.short}: {column.label}" for column in COLUMNS.values())
    return f"{count_worlds(board.worlds)}. Mean ± standard deviation over seeds, in per cent or points. {columns}."


def build_terminal_leaderboard(board: Leaderboard) -> "Table":
    """Build the table for a terminal; no text in it is read as markup."""
    from rich.table import Column, Table
    from rich.text import Text

    heads, *lines = list_lines(board)
    result = Table(*(Column(Text(head)) for head in heads))
    for line in lines:
        result.add_row(*map(Text, line))
    return result


def format_leaderboard_markdown(board: Leaderboard) -> str:
    """Format a leaderboard as Markdown."""
    heads, *lines = [list(map(escape_markdown, line)) for line in list_lines(board)]
    rows = [heads, ["---", *("---:" for _ in COLUMNS)], *lines]
    body = "".join(f"| {' | '.join(line)} |\n" for line in rows)
    return f"# {escape_markdown(board.title)}\n\n{body}\n{write_leaderboard_legend(board)}\n"


def format_leaderboard_csv(board: Leaderboard) -> str:
    """Format a leaderboard as CSV: one line per defense and number, in fractions and seconds."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["defense", "number", "value", "spread", "missing", "runs"])
    for standing in board.standings:
        for key in COLUMNS:
            value, spread, runs = standing.scores[key]
            numbers = ("" if each is None else f"{each:.6g}" for each in (value, spread))
            own = (escape_formula(standing.defense), key, *numbers, standing.missing, escape_formula(" ".join(runs)))
            writer.writerow(own)
    return file.getvalue()
