"""Executes runs one after the other in this process: data and models of a caller's own need not be sent anywhere."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic

from snowball.sim.engines.base import Engine
from snowball.sim.federation import Federation
from snowball.sim.run import run_experiment
from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import JobEvent, describe_failure


class SerialExecutor:
    """Executes one run at a time, which may train its clients in processes; each resumes from its checkpoint."""

    jobs = 1

    def __init__(self, engine: Callable[[Federation], Engine]) -> None:
        self.engine = engine

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[JobEvent]:
        """Execute the runs and yield their events; closing the generator stops them."""
        for each in runs:
            yield from self.execute(each, folder / each.name)

    def execute(self, planned: PlannedRun, path: Path) -> Generator[JobEvent]:
        """Execute one run, from its checkpoint to its end."""
        round, updated, fault = 0, monotonic(), ""
        try:
            with closing(run_experiment(planned.experiment, path, self.engine, resume=True)) as rounds:
                for record in rounds:
                    round, before, updated = record["round"], updated, monotonic()
                    yield JobEvent(planned, round, updated - before)
        except Exception as error:
            fault = describe_failure(error)
        yield JobEvent(planned, round, 0.0, True, fault)
