"""Sweeps: grids of experiments."""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import STOPPED, app
from snowball.errors import SettingError

if TYPE_CHECKING:
    from snowball.sweeps.grid import Grid
    from snowball.sweeps.sweep import News, Plan, Player


class Where(StrEnum):
    """Where the runs of a sweep are played: in processes of this machine, or on a Ray cluster."""

    local = "local"
    ray = "ray"


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="GRID|FILE", help="A grid's name or a TOML file.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; all cores.")] = None,
    engine: Annotated[Where, typer.Option(help="Where runs are played.")] = Where.local,
    address: Annotated[str | None, typer.Option(help="The Ray cluster; one of its own.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Play what failed before, too.")] = False,
) -> None:
    """Run a grid of experiments; where it was stopped, it goes on."""
    play = choose_player(engine, jobs, address)
    from snowball.sweeps.grid import read_grid
    from snowball.sweeps.lock import alone
    from snowball.sweeps.sweep import prepare

    chosen = read_grid(source)
    refuse_unshowable(chosen, out)
    with alone(out), terminable():
        plan = prepare(chosen, out, retry)
        skipped = f", {len(plan.skipped)} failed before (--retry plays them)" if plan.skipped else ""
        typer.echo(f"{chosen.title}: {len(plan.done)} runs are done{skipped}, {len(plan.waiting)} are to be played")
        try:
            failed = follow(plan, out, play)
        except KeyboardInterrupt:
            typer.echo(f"stopped; the same command goes on with what is in {out}", err=True)
            raise typer.Exit(STOPPED) from None
    lacking = len(plan.skipped) + failed
    typer.echo(f"{len(chosen.runs) - lacking} of {len(chosen.runs)} runs are in {out}")
    if lacking:
        typer.echo(f"{lacking} failed; {out / 'failed.json'} says why; --retry plays them again")
        raise typer.Exit(1)


def choose_player(engine: Where, jobs: int | None, address: str | None) -> "Player":
    """What plays the runs of a sweep."""
    if engine is Where.ray:
        from snowball.sweeps.executors.ray import OnRay

        return OnRay(jobs, address)
    if address is not None:
        raise SettingError(f"--address {address} needs --engine ray, not {engine}")
    from snowball.sim.engines.forkserver import warm

    warm()  # imports torch for the runs, while this process imports its own
    from snowball.sim.engines.processes import cores
    from snowball.sweeps.executors.local import SideBySide

    return SideBySide(jobs or cores())


def refuse_unshowable(grid: "Grid", folder: Path) -> None:
    """Refuse a table or a figure that no report could show, before anything is played."""
    from snowball.report.figures import figure_of
    from snowball.report.sweeps import build_sweep

    faults: list[str] = []
    figure_of(build_sweep(grid.manifest(), folder, grid.name, faults))
    if faults:
        raise SettingError(faults[0])


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM mean what Ctrl-C means."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def follow(plan: "Plan", folder: Path, play: "Player") -> int:
    """Play what waits, with a line a run that ends and, on a terminal, a bar; how many failed."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from snowball.report.runs import duration
    from snowball.sweeps.progress import Estimate
    from snowball.sweeps.sweep import sweep

    estimate = Estimate(plan.waiting)
    columns = BarColumn(12), TextColumn("{task.description}")
    with (
        closing(sweep(plan, folder, play)) as heard,
        Progress(*columns, console=Console(), transient=True, disable=not sys.stdout.isatty()) as progress,
    ):
        task = progress.add_task("starting", total=estimate.rounds)
        for news in heard:
            estimate.hear(news)
            seconds = estimate.seconds(play.jobs)
            left = f"{estimate.ended} of {len(plan.waiting)}" + (f", {duration(seconds)} left" if seconds else "")
            if news.ended:
                progress.console.out(f"{left}: {ending(news, folder)}", highlight=False)
            progress.update(task, completed=estimate.rounds - sum(estimate.left.values()), description=left)
    return estimate.failed


def ending(news: "News", folder: Path) -> str:
    """How a run ended, in a line."""
    from snowball.records.run import RunFolder
    from snowball.report.runs import percent, table

    if news.fault:
        return f"{news.run.name} failed: {news.fault}"
    row = table([RunFolder.open(folder / news.run.name)])[0]
    best = f"accuracy {percent(row.best_main_accuracy)}, backdoor {percent(row.best_backdoor_accuracy)}"
    return f"{news.run.name}: {best} in its best round"
