"""The command `sweep`: runs a grid of experiments."""

import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import app
from snowball.cli.stopping import exit_stopped
from snowball.errors import SettingError

if TYPE_CHECKING:
    from snowball.sweeps.grid import Grid
    from snowball.sweeps.sweep import Executor, JobEvent, Plan


class SweepEngine(StrEnum):
    """The executors of a sweep: processes on this machine, or tasks on a Ray cluster."""

    local = "local"
    ray = "ray"


@app.command("sweep")
def sweep_grid(
    source: Annotated[
        str, typer.Argument(metavar="GRID|FILE", help="A grid (see `snowball list grids`) or a TOML file.")
    ],
    out: Annotated[Path, typer.Option(help="Output folder; one subfolder per run.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="Parallel runs (default: all cores).")] = None,
    engine: Annotated[SweepEngine, typer.Option(help="Where to execute the runs.")] = SweepEngine.local,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster (default: start a local one).")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed runs again.")] = False,
) -> None:
    """Run a grid of experiments.

    Finished runs are skipped and interrupted ones continue.
    """
    execute = choose_executor(engine, jobs, address)
    from snowball.records.lock import exclusive_lock
    from snowball.sweeps.grid import read_grid
    from snowball.sweeps.sweep import prepare_sweep

    chosen = read_grid(source)
    refuse_unshowable(chosen, out)
    with exclusive_lock(out, "sweep"):
        plan = prepare_sweep(chosen, out, retry)
        skipped = f", {len(plan.skipped)} failed before (--retry runs them again)" if plan.skipped else ""
        typer.echo(f"{chosen.title}: {len(plan.done)} runs are done{skipped}, {len(plan.waiting)} to do")
        try:
            failed = follow_sweep(plan, out, execute)
        except KeyboardInterrupt:
            exit_stopped(f"run the same command to continue; the runs so far are in {out}")
    missing = len(plan.skipped) + failed
    typer.echo(f"{len(chosen.runs) - missing} of {len(chosen.runs)} runs are in {out}")
    if missing:
        typer.echo(f"{missing} failed; {out / 'failed.json'} says why; --retry runs them again")
        raise typer.Exit(1)


def choose_executor(engine: SweepEngine, jobs: int | None, address: str | None) -> "Executor":
    """Return the executor for a sweep's runs."""
    if engine is SweepEngine.ray:
        from snowball.sweeps.executors.ray import RayExecutor

        return RayExecutor(jobs, address)
    if address is not None:
        raise SettingError(f"--address {address} needs --engine ray, not {engine}")
    from snowball.sim.engines.forkserver import start_forkserver

    start_forkserver()  # imports torch for the runs, while this process imports its own
    from snowball.sim.engines.processes import count_cores
    from snowball.sweeps.executors.local import LocalExecutor

    return LocalExecutor(jobs or count_cores())


def refuse_unshowable(grid: "Grid", folder: Path) -> None:
    """Refuse a table or a figure that no report could show, before the first run."""
    from snowball.report.figures import build_figure
    from snowball.report.sweeps import build_sweep

    faults: list[str] = []
    build_figure(build_sweep(grid.manifest(), folder, grid.name, faults))
    if faults:
        raise SettingError(faults[0])


def follow_sweep(plan: "Plan", folder: Path, execute: "Executor") -> int:
    """Execute the waiting runs, print one line per run that ends, and return how many failed."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from snowball.report.runs import format_duration
    from snowball.sweeps.progress import Estimate
    from snowball.sweeps.sweep import run_sweep

    estimate = Estimate(plan.waiting)
    columns = BarColumn(12), TextColumn("{task.description}")
    with (
        closing(run_sweep(plan, folder, execute)) as events,
        Progress(*columns, console=Console(), transient=True, disable=not sys.stdout.isatty()) as progress,
    ):
        task = progress.add_task("starting", total=estimate.rounds)
        for event in events:
            estimate.update(event)
            seconds = estimate.seconds(execute.jobs)
            left = f"{estimate.ended} of {len(plan.waiting)}" + (
                f", {format_duration(seconds)} left" if seconds else ""
            )
            if event.ended:
                progress.console.out(f"{left}: {describe_end(event, folder)}", highlight=False)
            progress.update(task, completed=estimate.rounds - sum(estimate.left.values()), description=left)
    return estimate.failed


def describe_end(event: "JobEvent", folder: Path) -> str:
    """Say in one line how a run ended."""
    from snowball.records.run import RunFolder
    from snowball.report.runs import build_rows, format_percent

    if event.fault:
        return f"{event.run.name} failed: {event.fault}"
    row = build_rows([RunFolder.open(folder / event.run.name)])[0]
    best = f"accuracy {format_percent(row.best_main_accuracy)}, backdoor {format_percent(row.best_backdoor_accuracy)}"
    return f"{event.run.name}: {best} in its best round"
