"""Writes the tables of sweeps to files, in every format."""

import re
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path

from snowball.records.files import make_folder, write_bytes
from snowball.report.export.csv import format_csv
from snowball.report.export.latex import format_latex
from snowball.report.export.leaderboard import format_leaderboard_csv, format_leaderboard_markdown
from snowball.report.export.markdown import format_markdown
from snowball.report.leaderboard import Leaderboard, build_leaderboard
from snowball.report.sweeps import Sweep
from snowball.report.tables import SweepTable, build_sweep_table

EXPORTS: dict[str, Callable[[SweepTable], str]] = {"csv": format_csv, "md": format_markdown, "tex": format_latex}
"""The formatters by file extension."""

LEADERBOARD_EXPORTS: dict[str, Callable[[Leaderboard], str]] = {
    "csv": format_leaderboard_csv,
    "md": format_leaderboard_markdown,
}
"""The formatters of leaderboards."""

RUN_TABLES = ("runs", "rounds")
"""The files that `snowball.report.export.runs` writes, without their endings."""


def write_exports(sweeps: Sequence[Sweep], folder: str | Path) -> list[Path]:
    """Write the table and the leaderboard of every sweep in every format, and return the paths of the files."""
    make_folder(Path(folder))
    written = []
    for sweep, name in zip(sweeps, choose_file_names([sweep.name for sweep in sweeps]), strict=True):
        table = build_sweep_table(sweep)
        for ending, export in EXPORTS.items():
            written.append(Path(folder) / f"{name}.{ending}")
            write_bytes(written[-1], export(table).encode())
        if sweep.leaderboard:
            written += write_leaderboard(build_leaderboard(sweep), Path(folder) / f"{name}-leaderboard")
    return written


def write_leaderboard(board: Leaderboard, path: Path) -> list[Path]:
    """Write a leaderboard in every format, and return the paths of the files."""
    files = {path.with_name(f"{path.name}.{ending}"): export(board) for ending, export in LEADERBOARD_EXPORTS.items()}
    for file, text in files.items():
        write_bytes(file, text.encode())
    return list(files)


def choose_file_names(names: Sequence[str]) -> list[str]:
    """Turn any names into distinct file names, other than those of the tables of single runs."""
    found = list(RUN_TABLES)
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:100]
        numbered = (f"{plain}-{number}" for number in count(2))
        found.append(next(each for each in chain([plain], numbered) if each not in found))
    return found[len(RUN_TABLES) :]
