"""Engine that trains one client after the other: the definition of what every engine computes."""

from collections.abc import Iterator, Sequence

import torch

from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import Engine
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply


class SerialEngine(Engine):
    """Trains one client after the other in this process."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.device = device
        self.training = LocalTraining(federation, device)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Train the clients in the cohort's order."""
        for slot, client in enumerate(cohort):
            client_state = state.clients.get(str(client))
            yield slot, self.training(state.base, client, round, client_state, state.buffers, state.attack)
