"""The leaderboard of a sweep for the page: numbers that link to their runs, and a table of all worlds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from snowball.report.leaderboard import (
    COLUMNS,
    Column,
    Score,
    Standing,
    build_leaderboard,
    count_worlds,
    score_trial,
    write_number,
)
from snowball.report.runs import ABSENT
from snowball.report.sweeps import Sweep
from snowball.report.worlds import State, World

REASONS: dict[State, str] = {
    "counts": "",
    "harmless": "FedAvg does not learn this backdoor with any seed, so the world does not count",
    "unknown": "FedAvg's runs are missing, so nobody knows whether the attack works",
    "clean": "nobody is malicious: the updates that are left out, all of them honest",
}
"""Why a world is drawn in grey, if it is."""


@dataclass(frozen=True)
class Entry:
    """A number of the page.

    Attributes:
        mean: the number as text; empty if it is not known.
        key: the number to sort by.
        runs: the indices of its runs on the page.
    """

    mean: str
    spread: str
    key: str
    runs: tuple[int, ...]


@dataclass(frozen=True)
class Line:
    """A defense: its numbers, and those of each world."""

    defense: str
    numbers: tuple[Entry, ...]
    worlds: tuple[Entry, ...]
    missing: int


@dataclass(frozen=True)
class LeaderboardTable:
    """A leaderboard of the page."""

    title: str
    columns: tuple[Column, ...]
    worlds: tuple[World, ...]
    lines: tuple[Line, ...]
    summary: str


def build_leaderboard_table(sweep: Sweep, indices: Mapping[Path, int]) -> LeaderboardTable:
    """Build a sweep's leaderboard; `indices` are those of the runs' folders on the page."""
    board = build_leaderboard(sweep)
    places = {run.name: indices.get(run.folder.resolve()) for run in sweep.runs}
    return LeaderboardTable(
        title=board.title,
        columns=tuple(COLUMNS.values()),
        worlds=board.worlds,
        lines=tuple(build_line(standing, board.worlds, places) for standing in board.standings),
        summary=count_worlds(board.worlds),
    )


def build_line(standing: Standing, worlds: Iterable[World], places: Mapping[str, int | None]) -> Line:
    """Build the line of a defense."""
    name = standing.defense
    return Line(
        defense=name,
        numbers=tuple(build_entry(standing.scores[key], column.timed, places) for key, column in COLUMNS.items()),
        worlds=tuple(build_entry(score_world(world, name), False, places) for world in worlds),
        missing=standing.missing,
    )


def score_world(world: World, defense: str) -> Score:
    """Return the number that stands for a defense in a world: what it leaves out where nobody is malicious."""
    number = "honest_left_out" if world.state == "clean" else "above_last"
    return score_trial(world.trials[defense], number) if defense in world.trials else Score()


def build_entry(score: Score, timed: bool, places: Mapping[str, int | None]) -> Entry:
    """Write a number as text."""
    return Entry(
        mean=write_number(score.value, timed).replace("-", "−"),  # noqa: RUF001
        spread=write_number(score.spread, timed),
        key="" if score.value is None else f"{score.value:.6g}",
        runs=tuple(place for name in score.runs if (place := places.get(name)) is not None),
    )


def describe_world(world: World) -> str:
    """Say how well FedAvg learns the backdoor of a world, and why it does not count, if so."""
    learned = ABSENT if world.learned is None else f"{100 * world.learned:.1f} %"
    told = "" if world.state == "clean" else f"FedAvg ends at {learned}"
    return "; ".join(filter(None, (told, REASONS[world.state])))
