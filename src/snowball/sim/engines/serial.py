"""Engines: ways to train a round's cohort, which differ in speed alone. `Serial` is the definition."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.records.checkpoint import Memory, State
from snowball.serialization import pack, unpack
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining
from snowball.threads import use_threads


class Replies(NamedTuple):
    """What a cohort's training gives, in the cohort's order.

    Attributes:
        rows: (K, d) the updates; good until the engine trains again.
        buffers: (K) those of the clients' models.
    """

    rows: Tensor
    buffers: list[Buffers]


class Engine(Protocol):
    """Trains cohorts between `__enter__` and `__exit__`."""

    device: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End what was started, if anything was."""
        return

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        ...


class Serial(Engine):
    """One client after the other, in this process."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.device = device
        self.training = LocalTraining(federation, device)
        self.rows = torch.empty(federation.experiment.cohort, self.training.trainer.layout.width)

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        learnt: Memory = {}
        trained: list[Buffers] = []
        with one_thread():
            for row, client in zip(self.rows, cohort, strict=True):
                reply = self.training(state.base, client, round, state.clients.get(str(client)), state.buffers)
                row.copy_(reply.row)
                learnt[str(client)] = reply.kept
                trained.append(reply.buffers)
        remember(state.clients, learnt)
        return Replies(self.rows, trained)


def remember(memory: Memory, learnt: Memory) -> None:
    """Bring up to date what clients keep between rounds; who learnt nothing keeps what there was."""
    memory.update({client: state for client, state in learnt.items() if state is not None})


def stow(kept: Any, buffers: Buffers) -> bytes:
    """What a client keeps and a model's buffers, for the line; nothing at all where there is neither."""
    return pack([kept, buffers] if kept is not None or buffers else None)


def unstow(luggage: bytes) -> tuple[Any, Buffers]:
    """What `stow` was given."""
    kept, buffers = unpack(luggage) or (None, {})
    return kept, buffers


def one_thread() -> AbstractContextManager[None]:
    """Sums in one order: the results of a thread pool depend on its size."""
    return use_threads(1)
