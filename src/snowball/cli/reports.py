"""The command `report`: shows runs and sweeps."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import (
    TABLE_CHARS,
    Html,
    app,
    build_table,
    free_standard_output,
    is_standard_output,
)
from snowball.errors import MissingExtra, RunError

if TYPE_CHECKING:
    from snowball.records.run import RunFolder
    from snowball.report import Row, Sweep
    from snowball.report.figures import Figure

RUN_WIDTH = 16
"""Maximum column width if the table has one column per run."""

MAX_HEADLINE_CHARS = 1200
"""The most characters that are shown of the line that says how the runs ended."""


@app.command("report")
def report_results(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or sweeps.")],
    html: Html = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show only sweeps, next to the published numbers.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write tables as CSV, Markdown and LaTeX, and images.")
    ] = None,
) -> None:
    """Show the results of runs and sweeps."""
    from snowball.report import build_rows, find_runs, read_sweeps, write_html
    from snowball.report.export.runs import write_run_exports
    from snowball.report.figures import build_figures

    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a folder")
    sweeps, faults = read_sweeps(paths)
    noted = faults if sweeps or faults else None  # without sweeps, the first folder without a usable run is an error
    folders = find_runs(paths, noted) if html or not paper else []
    if not sweeps and (paper or not folders):
        raise RunError(faults[0] if faults else f"there is no sweep in {', '.join(map(str, paths))}")
    with free_standard_output(html):
        if not paper:
            sweeps = [replace(sweep, published=None) for sweep in sweeps]
            rows = build_rows(folders, faults)
            if not rows and not sweeps:
                raise RunError(faults[0])
            show_runs(rows)
            show_headline(rows)
        show_sweeps(sweeps)
        figures = build_figures(sweeps, faults)
    try:
        if export:
            single = [] if paper else list_single_runs(folders, sweeps)
            files = write_tables(sweeps, figures, export, faults) + write_run_exports(single, export, faults)
            typer.echo(f"{len(files)} files are in {export}.", err=is_standard_output(html))
        if html:
            write_html(folders, html, sweeps, faults, figures)
        if html and not is_standard_output(html):
            typer.echo(f"The report is {html}: open it in a browser.")
    finally:
        show_faults(faults)


def list_single_runs(folders: "Iterable[RunFolder]", sweeps: "Iterable[Sweep]") -> "list[RunFolder]":
    """List the runs that belong to no sweep."""
    in_sweeps = {run.folder.resolve() for sweep in sweeps for run in sweep.runs}
    return [folder for folder in folders if folder.path.resolve() not in in_sweeps]


def show_sweeps(sweeps: "Iterable[Sweep]") -> None:
    """Print the tables of sweeps."""
    from rich.console import Console
    from rich.text import Text

    from snowball.report.cell_text import write_terminal_legend
    from snowball.report.export.leaderboard import build_terminal_leaderboard, write_leaderboard_legend
    from snowball.report.export.terminal import build_terminal_tables
    from snowball.report.leaderboard import build_leaderboard
    from snowball.report.tables import build_sweep_table

    console = Console(width=None if sys.stdout.isatty() else TABLE_CHARS)
    for sweep in sweeps:
        table = build_sweep_table(sweep)
        console.print(Text(f"\n{sweep.name}: {table.title}", style="bold"))
        for part in build_terminal_tables(table, console.width):
            console.print(part)
        console.print(Text(write_terminal_legend(table)))
        if sweep.leaderboard:
            board = build_leaderboard(sweep)
            console.print(Text("\nLeaderboard", style="bold"), build_terminal_leaderboard(board))
            console.print(Text(write_leaderboard_legend(board)))


def write_tables(
    sweeps: "Sequence[Sweep]", figures: "Sequence[Figure | None]", folder: Path, faults: list[str]
) -> list[Path]:
    """Write the tables and figures of sweeps, and return the files; a missing extra for images is a fault."""
    from snowball.report.export.write import write_exports

    files = write_exports(sweeps, folder)
    if any(figures):
        try:
            from snowball.report.export.matplotlib import write_static_figures

            files += write_static_figures(sweeps, figures, folder)
        except MissingExtra as error:
            faults.append(str(error))
    return files


def show_faults(faults: Iterable[str]) -> None:
    """Print what could not be reported."""
    from snowball.records.text import escape_text
    from snowball.report.sweeps import MAX_SENTENCE_CHARS

    for fault in dict.fromkeys(escape_text(fault, MAX_SENTENCE_CHARS) for fault in faults):
        typer.echo(f"snowball: {fault}", err=True)


def show_runs(rows: "Sequence[Row]") -> None:
    """Print a table of runs."""
    from rich.console import Console

    from snowball.report import HEADERS

    runs = [row.cells() for row in rows]
    console = Console(
        width=None if sys.stdout.isatty() else TABLE_CHARS + max((len(cells[0]) for cells in runs), default=0)
    )
    if console.width >= TABLE_CHARS:
        console.print(build_table([HEADERS, *runs]))
    else:
        fitting = count_fitting_runs(console.width, HEADERS, runs) if runs else 1
        for start in range(0, len(runs), fitting):
            console.print(build_table(list(zip(HEADERS, *runs[start : start + fitting], strict=True))))
    show_exceptions(rows)


def show_headline(rows: "Sequence[Row]") -> None:
    """Print how the runs ended, in one line."""
    from snowball.records.text import escape_text
    from snowball.report.prose import write_headline

    if rows:
        typer.echo(escape_text(write_headline(rows), MAX_HEADLINE_CHARS))


def show_exceptions(rows: "Iterable[Row]") -> None:
    """Print which runs dropped clients or kept a round's old model, and how a backdoor faded."""
    from snowball.records.text import escape_text
    from snowball.report.prose import describe_exceptions, describe_fading
    from snowball.report.sweeps import MAX_SENTENCE_CHARS

    for row in rows:
        for said in filter(None, (describe_fading(row), describe_exceptions(row))):
            typer.echo(escape_text(f"{row.name}: {said}", MAX_SENTENCE_CHARS))


def count_fitting_runs(width: int, headers: Iterable[str], runs: Iterable[Iterable[str]]) -> int:
    """Return how many columns of runs fit beside the headers, at least one."""
    edges = 3  # per column: two spaces and a line
    widest = min(RUN_WIDTH, max(len(cell) for cells in runs for cell in cells))
    return max(1, (width - 1 - max(map(len, headers)) - edges) // (widest + edges))
