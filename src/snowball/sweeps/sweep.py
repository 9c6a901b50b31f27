"""Runs a grid into a folder: skips finished runs, records failed ones, and resumes interrupted ones."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from snowball.errors import RunError, SnowballError
from snowball.records.drafts import remove_leftovers
from snowball.records.sweep import MANIFESTS, read_failed, write_failed, write_manifest
from snowball.sim.run import is_finished
from snowball.sweeps.grid import Grid, PlannedRun


class JobEvent(NamedTuple):
    """Progress of one run, or its end.

    Attributes:
        round: rounds done so far.
        pace: mean seconds per round since the last event; 0 if no round ended since then.
        ended: this is the run's last event.
        fault: one sentence on why the run failed; empty if it did not.
    """

    run: PlannedRun
    round: int
    pace: float
    ended: bool = False
    fault: str = ""


class Executor(Protocol):
    """Executes runs into a folder, `jobs` at a time."""

    jobs: int

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[JobEvent]:
        """Execute the runs and yield their events; closing the generator stops them."""
        ...


@dataclass(frozen=True)
class Plan:
    """The runs of a grid by what remains to be done.

    Attributes:
        done: finished runs.
        skipped: runs that failed before and are not tried again.
        waiting: runs to execute, in order.
        failed: one sentence per failed run in the folder, of other grids too.
    """

    done: tuple[PlannedRun, ...]
    skipped: tuple[PlannedRun, ...]
    waiting: tuple[PlannedRun, ...]
    failed: dict[str, str]


def prepare_sweep(grid: Grid, folder: Path, retry: bool = False) -> Plan:
    """Plan a grid from what the folder already holds, and write the grid's manifest there."""
    for each in (folder, folder / MANIFESTS):
        remove_leftovers(each)
    before = read_failed(folder)
    done, unusable = inspect_runs(grid, folder)
    failed = {name: before[name] for name in before if name not in done} | unusable
    skipped = set() if retry else failed.keys()
    write_manifest(folder, grid.manifest())
    return Plan(
        tuple(run for run in grid.runs if run.name in done),
        tuple(run for run in grid.runs if run.name in skipped),
        tuple(run for run in grid.order_runs() if run.name not in done | skipped),
        update_failed(folder, before, failed),
    )


def inspect_runs(grid: Grid, folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the names of finished runs, and one sentence per run whose folder cannot be used."""
    done, unusable = set(), {}
    for run in grid.runs:
        try:
            if is_finished(folder / run.name, run.experiment):
                done.add(run.name)
        except RunError as error:
            unusable[run.name] = describe_failure(error)
    return done, unusable


def run_sweep(plan: Plan, folder: Path, execute: Executor) -> Generator[JobEvent]:
    """Execute the waiting runs and yield their events; a failure is on disk before its event."""
    failed = plan.failed
    with closing(execute(plan.waiting, folder)) as events:
        for event in events:
            if event.ended:
                others = {name: failed[name] for name in failed if name != event.run.name}
                failed = update_failed(folder, failed, others | ({event.run.name: event.fault} if event.fault else {}))
            yield event


def describe_failure(error: Exception) -> str:
    """Return one sentence on why a run failed."""
    said = " ".join(str(error).split())
    return said if isinstance(error, SnowballError) else f"{type(error).__name__}: {said}"


def update_failed(folder: Path, before: dict[str, str], failed: dict[str, str]) -> dict[str, str]:
    """Write the failures if they changed, and return them."""
    if failed != before:
        write_failed(folder, failed)
    return failed
