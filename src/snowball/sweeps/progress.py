"""How far a sweep is, and how long it will take yet, from the rounds that were played."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import News

Kind = tuple[str, str]
"""Runs whose rounds take about as long: the data set and the defense."""


class Estimate:
    """What was heard of the runs of a sweep.

    Rounds of a kind not heard of yet are taken to last as the others on the same data do, or as all others.

    Attributes:
        rounds: of all runs.
        left: those that are to be played yet, by run.
        ended: runs that have ended.
        failed: those of them that failed.
    """

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.left = {run.name: run.experiment.rounds for run in runs}
        self.kinds = {run.name: kind(run) for run in runs}
        self.paces: defaultdict[Kind, list[float]] = defaultdict(list)
        self.rounds, self.ended, self.failed = sum(self.left.values()), 0, 0

    def hear(self, news: News) -> None:
        """Take in what is heard."""
        if news.pace:
            self.paces[self.kinds[news.run.name]].append(news.pace)
        self.left[news.run.name] = 0 if news.ended else news.run.experiment.rounds - news.round
        self.ended += news.ended
        self.failed += bool(news.fault)

    def seconds(self, jobs: int) -> float | None:
        """Seconds that so many jobs need for what is left; None before a round was heard of."""
        if not self.paces:
            return None
        paces = {kind: fmean(heard) for kind, heard in self.paces.items()}
        known = {kind: guess(kind, paces) for kind in self.kinds.values()} | paces
        runs = [left * known[self.kinds[name]] for name, left in self.left.items()]
        return max(sum(runs) / jobs, *runs)  # the longest may be the last


def guess(kind: Kind, paces: Mapping[Kind, float]) -> float:
    """Seconds that a round of a kind may take that was not heard of."""
    alike = [pace for (data, _), pace in paces.items() if data == kind[0]]
    return fmean(alike or paces.values())


def kind(run: PlannedRun) -> Kind:
    """What kind of run it is."""
    return run.experiment.data.name, run.experiment.defense.name
