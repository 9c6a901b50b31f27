"""Estimates a sweep's remaining time from the rounds it has done."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import JobEvent

Kind = tuple[str, str]
"""The data set and defense of a run: rounds of one kind take about equally long."""


class Estimate:
    """Counts a sweep's rounds and estimates the seconds left.

    A kind without a finished round is assumed to be as fast as the others on the same data, or else as all others.

    Attributes:
        rounds: rounds of all runs.
        left: rounds left, by run.
        ended: number of runs that ended.
        failed: number of runs that failed.
    """

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.left = {run.name: run.experiment.rounds for run in runs}
        self.kinds = {run.name: classify_run(run) for run in runs}
        self.paces: defaultdict[Kind, list[float]] = defaultdict(list)
        self.rounds, self.ended, self.failed = sum(self.left.values()), 0, 0

    def update(self, event: JobEvent) -> None:
        """Count an event."""
        if event.pace:
            self.paces[self.kinds[event.run.name]].append(event.pace)
        self.left[event.run.name] = 0 if event.ended else event.run.experiment.rounds - event.round
        self.ended += event.ended
        self.failed += bool(event.fault)

    def seconds(self, jobs: int) -> float | None:
        """Estimate the seconds that `jobs` parallel jobs need for the rest; None before the first round ends."""
        if not self.paces:
            return None
        paces = {kind: fmean(seconds) for kind, seconds in self.paces.items()}
        known = {kind: estimate_pace(kind, paces) for kind in self.kinds.values()} | paces
        runs = [left * known[self.kinds[name]] for name, left in self.left.items()]
        return max(sum(runs) / jobs, *runs)  # the longest may be the last


def estimate_pace(kind: Kind, paces: Mapping[Kind, float]) -> float:
    """Estimate the seconds per round of a kind without a finished round."""
    same_data = [pace for (data, _), pace in paces.items() if data == kind[0]]
    return fmean(same_data or paces.values())


def classify_run(run: PlannedRun) -> Kind:
    """Return a run's kind."""
    return run.experiment.data.name, run.experiment.defense.name
