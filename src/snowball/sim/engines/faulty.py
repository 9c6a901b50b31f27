"""Engine that loses or repeats replies of another engine, as the experiment's faults say."""

from collections.abc import Iterator, Sequence

from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import Engine
from snowball.sim.experiment import Experiment
from snowball.sim.faults import is_duplicated, is_lost
from snowball.sim.training.client import Reply


class FaultyEngine(Engine):
    """Passes on the replies of an engine that is running."""

    def __init__(self, engine: Engine, experiment: Experiment) -> None:
        self.engine, self.experiment = engine, experiment
        self.device, self.rows = engine.device, engine.rows

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Let the engine train the cohort; pass on no reply of some clients, and two of others."""
        for slot, reply in self.engine.train(state, cohort, round):
            if not is_lost(self.experiment, cohort[slot], round):
                yield from [(slot, reply)] * (1 + is_duplicated(self.experiment, cohort[slot], round))
