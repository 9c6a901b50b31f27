"""Engine protocol: trains the clients of a round one by one, in parallel or on other machines.

Engines differ in speed only; `Serial` defines the results. An engine yields replies in any order, and `train_cohort`
collects them.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from snowball.buffers import Buffers
from snowball.records.checkpoint import Memory, State
from snowball.serialization import pack, unpack
from snowball.sim.training.client import Reply
from snowball.threads import use_threads


class Engine(Protocol):
    """Trains cohorts between `__enter__` and `__exit__`.

    Attributes:
        device: the torch device that clients are trained on.
        rows: (K, d) memory for the updates of one round.
    """

    device: str
    rows: Tensor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop whatever `__enter__` started."""
        return

    def train(self, state: State, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Train each client of a cohort from the state's global model; yield its slot in the cohort and its reply.

        The state is left as it is. A reply's row may already be the slot's row of `rows`.
        """
        ...


class Replies(NamedTuple):
    """The results of training a cohort, in the cohort's order.

    Attributes:
        rows: (K, d) the updates; valid until the engine trains again.
        buffers: (K) the buffers of the clients' models.
    """

    rows: Tensor
    buffers: list[Buffers]


def train_cohort(engine: Engine, state: State, cohort: Sequence[int], round: int) -> Replies:
    """Train a cohort, collect its replies, and update in `state.clients` what the clients keep between rounds."""
    kept: Memory = {}
    buffers: dict[int, Buffers] = {}
    with one_thread():
        for slot, reply in engine.train(state, cohort, round):
            if reply.row.data_ptr() != engine.rows[slot].data_ptr():  # workers write into shared memory themselves
                engine.rows[slot] = reply.row
            buffers[slot] = reply.buffers
            if reply.kept is not None:
                kept[str(cohort[slot])] = reply.kept
    state.clients.update((client, kept[client]) for client in map(str, cohort) if client in kept)
    return Replies(engine.rows, [buffers[slot] for slot in range(len(cohort))])


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
