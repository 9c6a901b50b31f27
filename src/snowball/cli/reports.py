"""Reports on runs and sweeps."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import WIDE, app, grid
from snowball.errors import MissingExtra, RunError

if TYPE_CHECKING:
    from snowball.records.run import RunFolder
    from snowball.report import Row, Sweep
    from snowball.report.figures import Figure

RUN_WIDTH = 16
"""Characters that a run with long names gets where the table has a column a run."""


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs and sweeps.")],
    html: Annotated[Path | None, typer.Option(help="Write a page that opens offline.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show sweeps alone, beside the published numbers.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write sweeps as CSV, Markdown, LaTeX and pictures.")
    ] = None,
) -> None:
    """Show what runs and sweeps amount to."""
    from snowball.report import find_runs, read_sweeps, write_html
    from snowball.report.figures import figures_of

    for path in paths:
        if not path.is_dir():
            raise RunError(f"there is no folder {path}")
    sweeps, faults = read_sweeps(paths)
    noted = faults if sweeps or faults else None  # of runs alone, the first that cannot be used is an error
    folders = find_runs(paths, noted) if html or not paper else []
    if not sweeps and (paper or export or not folders):
        raise RunError(faults[0] if faults else f"there is no sweep in {', '.join(map(str, paths))}")
    if not paper:
        sweeps = [replace(sweep, published=None) for sweep in sweeps]
        show_runs(folders, noted)
    show_sweeps(sweeps)
    figures = figures_of(sweeps, faults)
    try:
        if export:
            write_tables(sweeps, figures, export, faults)
        if html:
            write_html(folders, html, sweeps, faults, figures)
            typer.echo(f"The report is {html}: open it in a browser.")
    finally:
        show_faults(faults)


def show_sweeps(sweeps: "Iterable[Sweep]") -> None:
    """Print the tables of sweeps."""
    from rich.console import Console
    from rich.text import Text

    from snowball.report.cell_text import key
    from snowball.report.export.terminal import terminal_tables
    from snowball.report.tables import grid_of

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    for sweep in sweeps:
        table = grid_of(sweep)
        console.print(Text(f"\n{sweep.name}: {table.title}", style="bold"))
        for part in terminal_tables(table, console.width):
            console.print(part)
        console.print(Text(key(table)))


def write_tables(
    sweeps: "Sequence[Sweep]", figures: "Sequence[Figure | None]", folder: Path, faults: list[str]
) -> None:
    """Write the tables of sweeps and their figures to a folder; that pictures need an extra is one of the faults."""
    from snowball.report.export.write import write_exports

    files = write_exports(sweeps, folder)
    if any(figures):
        try:
            from snowball.report.export.matplotlib import write_pictures

            files += write_pictures(sweeps, figures, folder)
        except MissingExtra as error:
            faults.append(str(error))
    typer.echo(f"{len(files)} files are in {folder}.")


def show_faults(faults: Iterable[str]) -> None:
    """Say what could not be reported."""
    from snowball.report.audit import visible
    from snowball.report.sweeps import LONGEST

    for fault in dict.fromkeys(visible(fault, LONGEST) for fault in faults):
        typer.echo(f"snowball: {fault}", err=True)


def show_table(paths: Iterable[Path]) -> "list[RunFolder]":
    """Print what the runs in these folders amount to."""
    from snowball.report import find_runs

    folders = find_runs(paths)
    show_runs(folders)
    return folders


def show_runs(folders: "Sequence[RunFolder]", faults: list[str] | None = None) -> None:
    """Print a table of runs; one that cannot be read is an error, or among the faults."""
    from rich.console import Console

    from snowball.report import HEADERS, table

    rows = table(folders, faults)
    runs = [row.cells() for row in rows]
    console = Console(width=None if sys.stdout.isatty() else WIDE + max((len(cells[0]) for cells in runs), default=0))
    if console.width >= WIDE:
        console.print(grid([HEADERS, *runs]))
    else:
        fitting = columns_in(console.width, HEADERS, runs) if runs else 1
        for start in range(0, len(runs), fitting):
            console.print(grid(list(zip(HEADERS, *runs[start : start + fitting], strict=True))))
    show_exceptions(rows)


def show_exceptions(rows: "Iterable[Row]") -> None:
    """Say which runs dropped clients, or left the model as it was."""
    from snowball.report.audit import visible
    from snowball.report.prose import describe_exceptions
    from snowball.report.sweeps import LONGEST

    for row in rows:
        if said := describe_exceptions(row):
            typer.echo(visible(f"{row.name}: {said}", LONGEST))


def columns_in(width: int, headers: Iterable[str], runs: Iterable[Iterable[str]]) -> int:
    """How many runs, at least one, fit side by side behind their headers."""
    edges = 3  # of a column: two spaces and a line
    widest = min(RUN_WIDTH, max(len(cell) for cells in runs for cell in cells))
    return max(1, (width - 1 - max(map(len, headers)) - edges) // (widest + edges))
