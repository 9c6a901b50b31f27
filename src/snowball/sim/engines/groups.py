"""Groups of clients that one process trains at once, if the model has hand-written gradients of several models.

A client's row is the one that it has alone, to the last bit, so groups may be cut as suits the number of workers.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import torch
from torch import Tensor

from snowball.attacks import Memory
from snowball.buffers import Buffers
from snowball.defenses import LocalDefense, State
from snowball.models.stacked import make_stacked_gradients
from snowball.rng import stream
from snowball.sim.engines.batching import StackedSamples
from snowball.sim.engines.stack import StackTrainer
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

MAX_GROUP = 8
"""Clients at a time on a CPU, where more are not faster."""


class GroupTraining:
    """Trains groups of clients: those that do nothing but SGD at once, the others one by one."""

    def __init__(self, training: LocalTraining) -> None:
        self.training, self.federation = training, training.federation
        self.device = training.trainer.device
        self.stack_trainer = StackTrainer(training.trainer)

    def __call__(
        self,
        base: Tensor,
        clients: Sequence[int],
        round: int,
        client_state: State | None,
        buffers: Buffers,
        memory: Memory | None = None,
    ) -> list[Reply]:
        """Train clients from the global row and buffers; only a client alone may have a state."""
        plain = [client for client in clients if not self.training.has_special_training(client, round)]
        stacked = plain if len(clients) > 1 else []
        trained = self.train_stack(base, stacked, round, buffers, memory) if stacked else []
        replies = dict(zip(stacked, trained, strict=True))
        return [
            replies.get(client) or self.training(base, client, round, client_state, buffers, memory)
            for client in clients
        ]

    def train_stack(
        self, base: Tensor, clients: Sequence[int], round: int, buffers: Buffers, memory: Memory | None = None
    ) -> list[Reply]:
        """Train clients that do nothing but SGD, all at once."""
        experiment = self.federation.experiment
        splits = [self.federation.select_training_samples(client, round, memory) for client in clients]
        samples = StackedSamples(
            self.normalise(torch.cat([split.inputs for split in splits])),
            torch.cat([split.labels for split in splits]).to(self.device),
            [len(split) for split in splits],
            [stream(experiment.seed, "client", client, "round", round) for client in clients],
        )
        stack = self.stack_trainer.train(samples, base, buffers, experiment.training.compute_rate(round))
        return [Reply(row - base, None, buffers) for row, buffers in stack.unstack()]

    def normalise(self, raw: Tensor) -> Tensor:
        """Scale and standardise raw samples on the device."""
        return self.federation.dataset.normalise(raw.to(self.device))


def allows_groups(federation: Federation) -> bool:
    """Return whether groups are faster and give the same rows: clients of a defense have states and train alone."""
    stacked = make_stacked_gradients(federation.build_model()) is not None
    return stacked and not isinstance(federation.experiment.defense.build(), LocalDefense)


def split_evenly(slots: Sequence[int], workers: int) -> list[Sequence[int]]:
    """Split slots into groups of at most `MAX_GROUP`, equally many for each worker and nearly equally large."""
    count = min(len(slots), workers * ceil(len(slots) / (workers * MAX_GROUP)))
    edges = [len(slots) * number // count for number in range(count + 1)]
    return [slots[start:end] for start, end in pairwise(edges)]
