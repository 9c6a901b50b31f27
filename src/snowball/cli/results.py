"""The commands `results collect` and `results merge`: results as one CSV file, here and from other machines."""

from pathlib import Path
from typing import Annotated

import typer

from snowball.cli.application import app

results_app = typer.Typer(help="Collect results in a file, and merge such files.", no_args_is_help=True)
app.add_typer(results_app, name="results")

Out = Annotated[Path, typer.Option(metavar="FILE", help="CSV file to write.")]


@results_app.command("collect")
def collect_runs(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or sweeps.")], out: Out
) -> None:
    """Write one row per finished run: settings, metrics, and where they were measured."""
    from snowball.cli.reports import show_faults
    from snowball.report.results import collect_results, merge_results, write_results
    from snowball.report.runs import find_runs

    faults: list[str] = []
    results = merge_results(collect_results(find_runs(paths), faults))
    write_results(results, out)
    show_faults(faults)
    typer.echo(f"{len(results)} results are in {out}.")


@results_app.command("merge")
def merge_files(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files that `results collect` wrote.")],
    out: Out,
) -> None:
    """Merge files of results: each measurement once.

    Results of the same settings from different machines both stay.
    """
    from snowball.report.results import merge_results, read_results, write_results

    results = merge_results(result for path in paths for result in read_results(path))
    write_results(results, out)
    typer.echo(f"{len(results)} results are in {out}.")
