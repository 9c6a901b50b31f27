"""Playing a grid into a folder: what is done is skipped, what fails is written down, what was stopped goes on."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from snowball.errors import RunError, SnowballError
from snowball.records.sweep import read_failed, write_failed, write_manifest
from snowball.sim.run import is_finished
from snowball.sweeps.grid import Grid, PlannedRun


class News(NamedTuple):
    """What is heard of a run.

    Attributes:
        round: the rounds that it has done.
        pace: seconds that a round took, of those since it was last heard of; 0 where there was none.
        ended: there is nothing more to hear.
        fault: the sentence that it ended with, unless all went well.
    """

    run: PlannedRun
    round: int
    pace: float
    ended: bool = False
    fault: str = ""


class Player(Protocol):
    """Plays runs into a folder, several at a time.

    Attributes:
        jobs: how many at a time.
    """

    jobs: int

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[News]:
        """Play these runs, and tell of them; closing what this gives stops them."""
        ...


@dataclass(frozen=True)
class Plan:
    """What there is to do for a grid.

    Attributes:
        done: the runs that are finished.
        skipped: those that failed before and are not tried again.
        waiting: those to be played.
        failed: the sentences of all that failed, of other grids' runs, too.
    """

    done: tuple[PlannedRun, ...]
    skipped: tuple[PlannedRun, ...]
    waiting: tuple[PlannedRun, ...]
    failed: dict[str, str]


def prepare(grid: Grid, folder: Path, retry: bool = False) -> Plan:
    """Look at what a folder holds of a grid, and leave the grid's manifest there."""
    before = read_failed(folder)
    done, unusable = look(grid, folder)
    failed = {name: before[name] for name in before if name not in done} | unusable
    skipped = set() if retry else failed.keys()
    write_manifest(folder, grid.manifest())
    return Plan(
        tuple(run for run in grid.runs if run.name in done),
        tuple(run for run in grid.runs if run.name in skipped),
        tuple(run for run in grid.in_turn() if run.name not in done | skipped),
        update_failed(folder, before, failed),
    )


def look(grid: Grid, folder: Path) -> tuple[set[str], dict[str, str]]:
    """The runs that are finished, and a sentence for every one whose folder cannot be used."""
    done, unusable = set(), {}
    for run in grid.runs:
        try:
            if is_finished(folder / run.name, run.experiment):
                done.add(run.name)
        except RunError as error:
            unusable[run.name] = fault_of(error)
    return done, unusable


def sweep(plan: Plan, folder: Path, play: Player) -> Generator[News]:
    """Play what waits; how a run ended is on disk before it is told."""
    failed = plan.failed
    with closing(play(plan.waiting, folder)) as heard:
        for news in heard:
            if news.ended:
                others = {name: failed[name] for name in failed if name != news.run.name}
                failed = update_failed(folder, failed, others | ({news.run.name: news.fault} if news.fault else {}))
            yield news


def fault_of(error: Exception) -> str:
    """What a run ended with, in one sentence."""
    said = " ".join(str(error).split())
    return said if isinstance(error, SnowballError) else f"{type(error).__name__}: {said}"


def update_failed(folder: Path, before: dict[str, str], failed: dict[str, str]) -> dict[str, str]:
    """Write the sentences of the runs that failed, where they changed."""
    if failed != before:
        write_failed(folder, failed)
    return failed
