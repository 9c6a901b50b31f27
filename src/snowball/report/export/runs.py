"""Tables of single runs for other programs: one line per run, and one line per round."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from snowball.records.files import make_folder, write_bytes
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.report.export.csv import escape_formula
from snowball.report.export.latex import escape_latex
from snowball.report.runs import (
    HEADERS,
    STAGES,
    Row,
    build_rows,
    choose_run_names,
    format_rows,
    note_faults,
    read_defense,
    read_setting_name,
)

NUMBERS = (
    "rounds",
    "finished",
    "best_round",
    "best_main_accuracy",
    "best_backdoor_accuracy",
    "last_main_accuracy",
    "last_backdoor_accuracy",
    "false_positive_rate",
    "false_negative_rate",
    "seconds",
)
"""The columns of runs.csv after those that say which run it is; fields of a row."""

ROUND_NUMBERS = ("main_accuracy", "backdoor_accuracy", "false_positive_rate", "false_negative_rate")
"""The columns of rounds.csv that are fields of a record."""


def write_run_exports(folders: Sequence[RunFolder], folder: str | Path, faults: list[str]) -> list[Path]:
    """Write the table of runs as CSV, Markdown and LaTeX, and their rounds as CSV; return the paths of the files.

    A run that cannot be read is a fault. Without runs, nothing is written.
    """
    if not folders:
        return []
    make_folder(Path(folder))
    rows = build_rows(folders, faults)
    texts = {
        "runs.csv": format_runs_csv(folders, rows),
        "runs.md": format_rows(rows),
        "runs.tex": format_runs_latex(rows),
        "rounds.csv": format_rounds_csv(folders, faults),
    }
    for name, text in texts.items():
        write_bytes(Path(folder) / name, text.encode(errors="backslashreplace"))
    return [Path(folder) / name for name in texts]


def format_runs_csv(folders: Sequence[RunFolder], rows: Iterable[Row]) -> str:
    """Format the table of runs as CSV, in fractions and seconds."""
    by_name = dict(zip(choose_run_names(folders), folders, strict=True))
    lines = ([row.name, *_read_settings(by_name[row.name]), *(getattr(row, name) for name in NUMBERS)] for row in rows)
    return _format_csv(("run", "data", "attack", "defense", "seed", *NUMBERS), lines)


def format_rounds_csv(folders: Sequence[RunFolder], faults: list[str]) -> str:
    """Format all rounds of all runs as CSV, in fractions and seconds; a run that cannot be read is a fault."""
    lines: list[list[Any]] = []
    for name, folder in zip(choose_run_names(folders), folders, strict=True):
        with note_faults(faults):
            lines += [[name, *_list_numbers(record)] for record in folder.read_rounds()]
    seconds = (f"seconds.{stage}" for stage in STAGES)
    return _format_csv(("run", "round", *ROUND_NUMBERS, "participants", "elected", *seconds), lines)


def format_runs_latex(rows: Sequence[Row]) -> str:
    """Format the table of runs as LaTeX, with rules of the package booktabs."""
    lines = [" & ".join(map(escape_latex, cells)) + r" \\" for cells in (HEADERS, *(row.cells() for row in rows))]
    table = [rf"\begin{{tabular}}{{ll{'r' * (len(HEADERS) - 2)}}}", r"\toprule", lines[0], r"\midrule", *lines[1:]]
    return "\n".join([r"% needs \usepackage{booktabs}", *table, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _read_settings(folder: RunFolder) -> Iterator[Any]:
    yield from (read_setting_name(folder.run, section) for section in ("data", "attack"))
    yield from (read_defense(folder.run), folder.run.get("seed"))


def _list_numbers(record: RoundRecord) -> list[Any]:
    elected = [len(record["elected"]), sum(record["elected"])]
    numbers = [record[name] for name in ROUND_NUMBERS]  # type: ignore[literal-required]
    return [record["round"], *numbers, *elected, *(record["seconds"].get(stage) for stage in STAGES)]


def _format_csv(headers: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([headers, *([_format_value(value) for value in line] for line in lines)])
    return file.getvalue()


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else escape_formula(str(value))
