"""Ranks the defenses of a sweep by how far they let backdoors in, over all worlds and attacks that count.

Worlds without malicious clients show what a defense costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from snowball.report.sweeps import Sweep
from snowball.report.worlds import Comparison, State, Trial, World, build_worlds


class Score(NamedTuple):
    """A number of the leaderboard, its spread over the seeds, and the runs behind it; None if it is not known."""

    value: float | None = None
    spread: float | None = None
    runs: tuple[str, ...] = ()


class Column(NamedTuple):
    """A number of the leaderboard; less is better.

    Attributes:
        number: the number of a comparison that it summarises.
        states: the worlds that it is taken over.
        worst: whether it is that of the worst world; otherwise it is the mean over the worlds.
        timed: whether it is in seconds rather than a fraction.
    """

    short: str
    label: str
    number: str
    states: tuple[State, ...] = ("counts",)
    worst: bool = False
    timed: bool = False


EVERYWHERE: tuple[State, ...] = ("counts", "harmless", "unknown", "clean")

COLUMNS = {
    "worst_last": Column("worst", "backdoor above Ideal's in the worst world, last round", "above_last", worst=True),
    "mean_last": Column("mean", "backdoor above Ideal's, mean over the worlds, last round", "above_last"),
    "worst_best": Column("worst, best", "the same in the round of the best main accuracy", "above_best", worst=True),
    "mean_best": Column("mean, best", "the same in the round of the best main accuracy", "above_best"),
    "main_lost": Column("main lost", "main accuracy below FedAvg's, last round", "main_lost"),
    "infected_elected": Column("infected in", "infected updates elected", "infected_elected"),
    "honest_left_out": Column("honest out", "honest updates left out", "honest_left_out"),
    "clean_main_lost": Column("main lost, clean", "the same where nobody is malicious", "main_lost", ("clean",)),
    "clean_left_out": Column("honest out, clean", "the same where nobody is malicious", "honest_left_out", ("clean",)),
    "seconds": Column("server, s", "seconds of the defense per round", "seconds", EVERYWHERE, timed=True),
}
"""The numbers of a defense, by name. The first one ranks."""


@dataclass(frozen=True)
class Standing:
    """A defense on the leaderboard.

    Attributes:
        scores: by the names of the columns.
        missing: how many of its runs are missing, of those that count.
    """

    defense: str
    scores: Mapping[str, Score]
    missing: int


@dataclass(frozen=True)
class Leaderboard:
    """A sweep's worlds, and its defenses from the best to the worst; those without a rank come last."""

    title: str
    worlds: tuple[World, ...]
    standings: tuple[Standing, ...]


def build_leaderboard(sweep: Sweep) -> Leaderboard:
    """Build the leaderboard of a sweep."""
    worlds = build_worlds(sweep.runs)
    defenses = dict.fromkeys(name for world in worlds for name in world.trials)
    standings = [rate_defense(name, worlds) for name in defenses]
    return Leaderboard(sweep.title, worlds, tuple(sorted(standings, key=rank_standing)))


def rate_defense(name: str, worlds: Sequence[World]) -> Standing:
    """Summarise a defense over all worlds."""
    trials = [world.trials[name] for world in worlds if name in world.trials]
    scores = {
        key: score_column(column, [trial for trial in trials if trial.state in column.states])
        for key, column in COLUMNS.items()
    }
    return Standing(name, scores, sum(trial.expected - len(trial.compared) for trial in trials))


def score_column(column: Column, trials: Sequence[Trial]) -> Score:
    """Return a column's number: of the worst world, or the mean over the worlds."""
    if column.worst:
        known = [score for trial in trials if (score := score_trial(trial, column.number)).value is not None]
        return max(known, key=lambda score: score.value or 0.0, default=Score())
    compared = {(place, each.seed): each for place, trial in enumerate(trials) for each in trial.compared}
    return summarise_seeds(compared, column.number)


def score_trial(trial: Trial, number: str) -> Score:
    """Return a number of a defense in one world."""
    return summarise_seeds({(0, each.seed): each for each in trial.compared}, number)


def summarise_seeds(compared: Mapping[tuple[int, int], Comparison], number: str) -> Score:
    """Return the mean over worlds of the means over their seeds, and the spread of the means per seed.

    The comparisons are given by world and seed.
    """
    known = {at: each for at, each in compared.items() if number in each.numbers}
    if not known:
        return Score()
    worlds, seeds = ({at[axis] for at in known} for axis in (0, 1))
    per_world = [fmean(each.numbers[number] for at, each in known.items() if at[0] == world) for world in worlds]
    per_seed = [fmean(each.numbers[number] for at, each in known.items() if at[1] == seed) for seed in seeds]
    return Score(
        fmean(per_world), stdev(per_seed) if len(per_seed) > 1 else None, tuple(each.run for each in known.values())
    )


def rank_standing(standing: Standing) -> tuple[bool, float]:
    """Return what the leaderboard is sorted by: the first column, with those that are not known last."""
    value = standing.scores[next(iter(COLUMNS))].value
    return value is None, value or 0.0


def write_number(value: float | None, timed: bool = False) -> str:
    """Write seconds, or a fraction in per cent; nothing if it is not known."""
    if value is None:
        return ""
    return f"{value:.2g}" if timed else f"{100 * value:z.1f}"


def count_worlds(worlds: Sequence[World]) -> str:
    """Say how many worlds count."""
    states = [world.state for world in worlds]
    return f"{states.count('counts')} of {len(states) - states.count('clean')} worlds with an attack count"
