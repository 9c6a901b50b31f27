"""An engine that trains many clients at once, for devices that one client's small operations do not fill.

Rows are those of `Serial` but for rounding: every client's samples, their order and its dropout are the same, and sums
run in another order. Who does more than SGD, by an attack or a defense, is trained alone as `Serial` does it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.records.checkpoint import State
from snowball.rng import stream
from snowball.sim.engines.base import Engine
from snowball.sim.engines.batching import Tasks
from snowball.sim.engines.stack import StackTrainer
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

CPU_CHUNK = 8
"""Clients at a time on a CPU, where more are no faster."""

SHARE = 0.5
"""Of the memory that a device has free, what clients may fill; their derivatives take about as much again."""


class Stacked(Engine):
    """Some clients at a time, in this process.

    Attributes:
        chunk: how many at a time.
    """

    def __init__(self, federation: Federation, device: str = "cpu", chunk: int | None = None) -> None:
        self.device, self.federation = device, federation
        self.training = LocalTraining(federation, device)
        self.stacks = StackTrainer(self.training.trainer)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)
        taken = self._rehearse()
        self.chunk = chunk or fitting(device, taken)

    def train(self, state: State, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Train clients that need more than SGD one by one, the others in chunks."""
        plain: list[int] = []  # slots
        for slot, client in enumerate(cohort):
            if self.training.is_special(client, round):
                kept = state.clients.get(str(client))
                yield slot, self.training(state.base, client, round, kept, state.buffers)
            else:
                plain.append(slot)
        plain.sort(key=lambda slot: -len(self.federation.parts[cohort[slot]]))  # chunks of clients of similar size
        for start in range(0, len(plain), self.chunk):
            slots = plain[start : start + self.chunk]
            yield from zip(slots, self._together(state, [cohort[slot] for slot in slots], round), strict=True)

    def _together(self, state: State, clients: Sequence[int], round: int) -> list[Reply]:
        """Train clients that do nothing but SGD, at once."""
        experiment = self.federation.experiment
        splits = [self.federation.training(client, round) for client in clients]
        tasks = Tasks(
            self._inputs(torch.cat([split.inputs for split in splits])),
            torch.cat([split.labels for split in splits]).to(self.device),
            [len(split) for split in splits],
            [stream(experiment.seed, "client", client, "round", round) for client in clients],
        )
        stack = self.stacks.train(tasks, state.base, state.buffers, experiment.training.rate(round))
        return [Reply(row - state.base, None, buffers) for row, buffers in stack.models()]

    def _rehearse(self) -> int:
        """The bytes that the largest client takes; a model that cannot be trained so is refused."""
        sample = self._inputs(self.federation.dataset.train.inputs[:1])
        try:
            return self.stacks.rehearse(sample, max(map(len, self.federation.parts)))
        except RuntimeError as error:
            model, reason = self.federation.experiment.model.name, str(error).partition("\n")[0].partition(". ")[0]
            raise SettingError(f"--engine vmap cannot train {model}, try --engine serial: {reason}") from error

    def _inputs(self, raw: Tensor) -> Tensor:
        return self.federation.dataset.normalise(raw.to(self.device))


def fitting(device: str, taken: int) -> int:
    """Clients that fit a device if each takes so many bytes."""
    if device == "cpu":
        return CPU_CHUNK
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, int(SHARE * free / taken))
