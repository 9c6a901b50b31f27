"""Engine that trains many clients at once, for devices that the small operations of one client do not fill.

Rows are those of `SerialEngine` up to rounding: the samples of every client, their order and its dropout are the same,
but sums run in another order. Clients that do more than SGD, because of an attack or a defense, are trained one by one.
"""

from collections.abc import Iterator, Sequence

import torch

from snowball.errors import SettingError
from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import Engine
from snowball.sim.engines.groups import MAX_GROUP, GroupTraining
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

MEMORY_SHARE = 0.5
"""Share of a device's free memory that clients may fill; their derivatives take about as much again."""


class VmapEngine(Engine):
    """Trains chunks of clients in this process.

    Attributes:
        chunk: clients at a time.
    """

    def __init__(self, federation: Federation, device: str = "cpu", chunk: int | None = None) -> None:
        self.device, self.federation = device, federation
        self.training = LocalTraining(federation, device)
        self.groups = GroupTraining(self.training)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)
        client_bytes = self._measure_client_bytes()
        self.chunk = chunk or choose_chunk(device, client_bytes)

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Train clients that need more than SGD one by one, the others in chunks."""
        plain: list[int] = []  # slots
        for slot, client in enumerate(cohort):
            if self.training.has_special_training(client, round):
                client_state = state.clients.get(str(client))
                yield slot, self.training(state.base, client, round, client_state, state.buffers, state.attack)
            else:
                plain.append(slot)
        plain.sort(key=lambda slot: -len(self.federation.parts[cohort[slot]]))  # chunks of clients of similar size
        for start in range(0, len(plain), self.chunk):
            slots = plain[start : start + self.chunk]
            clients = [cohort[slot] for slot in slots]
            replies = self.groups.train_stack(state.base, clients, round, state.buffers, state.attack)
            yield from zip(slots, replies, strict=True)

    def _measure_client_bytes(self) -> int:
        """Return the bytes that the largest client takes; refuse a model that torch cannot train in a stack."""
        sample = self.groups.normalise(self.federation.dataset.train.inputs[:1])
        try:
            return self.groups.stack_trainer.measure_client_bytes(sample, max(map(len, self.federation.parts)))
        except RuntimeError as error:
            model, reason = self.federation.experiment.model.name, str(error).partition("\n")[0].partition(". ")[0]
            raise SettingError(f"--engine vmap cannot train {model}, try --engine serial: {reason}") from error


def choose_chunk(device: str, client_bytes: int) -> int:
    """Return how many clients fit a device if each takes this many bytes."""
    if device == "cpu":
        return MAX_GROUP
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, int(MEMORY_SHARE * free / client_bytes))
