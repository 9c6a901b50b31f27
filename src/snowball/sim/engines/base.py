"""Engine protocol: trains the clients of a round one by one, in parallel or on other machines.

Engines differ in speed only; `SerialEngine` defines the results. An engine yields replies in any order, and
`train_cohort` collects them.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from snowball.attacks import Memory
from snowball.buffers import Buffers
from snowball.records.checkpoint import ClientStates, RunState
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

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Train each client of a cohort from the state's global model; yield its slot in the cohort and its reply.

        The state is left as it is. A reply's row may already be the slot's row of `rows`. A client that failed has no
        reply, and the round continues without it.
        """
        ...


class Replies(NamedTuple):
    """The results of training a cohort, in the cohort's order.

    Attributes:
        rows: (K, d) the updates; valid until the engine trains again. NaN for clients that failed.
        buffers: (K) the buffers of the clients' models; empty for clients that failed.
        failed: the slots of clients without a reply that fits the model.
    """

    rows: Tensor
    buffers: list[Buffers]
    failed: tuple[int, ...] = ()


def train_cohort(engine: Engine, state: RunState, cohort: Sequence[int], round: int) -> Replies:
    """Train a cohort, collect its replies, and update the clients' states in `state` once training has ended.

    The first reply of a client counts. A reply that does not fit the model counts as none.
    """
    client_states: ClientStates = {}
    buffers: dict[int, Buffers] = {}
    with use_one_thread():
        for slot, reply in engine.train(state, cohort, round):
            if slot in buffers or not fits_model(reply, state):
                continue
            if reply.row.data_ptr() != engine.rows[slot].data_ptr():  # workers write into shared memory themselves
                engine.rows[slot] = reply.row
            buffers[slot] = reply.buffers
            if reply.client_state is not None:
                client_states[str(cohort[slot])] = reply.client_state
    state.clients.update((name, client_states[name]) for name in map(str, cohort) if name in client_states)
    failed = tuple(slot for slot in range(len(cohort)) if slot not in buffers)
    for slot in failed:
        engine.rows[slot] = torch.nan  # nobody takes an earlier round's row for an update
    return Replies(engine.rows, [buffers.get(slot, {}) for slot in range(len(cohort))], failed)


def fits_model(reply: Reply, state: RunState) -> bool:
    """Return whether a reply has the shapes of the global row and buffers."""
    shapes = {name: tensor.shape for name, tensor in reply.buffers.items()}
    expected = {name: tensor.shape for name, tensor in state.buffers.items()}
    return reply.row.shape == state.base.shape and shapes == expected


def pack_message(client_state: Any, buffers: Buffers, memory: Memory | None = None) -> bytes:
    """Serialise a client's state, a model's buffers and an attack's memory; no bytes at all if there is none."""
    if memory is not None:
        return pack([client_state, buffers, memory])
    return pack([client_state, buffers] if client_state is not None or buffers else None)


def unpack_message(payload: bytes) -> tuple[Any, Buffers, Memory | None]:
    """Return the client state, the buffers and the memory that `pack_message` serialised."""
    client_state, buffers, *rest = unpack(payload) or (None, {})
    return client_state, buffers, rest[0] if rest else None


def pack_replies(replies: Sequence[Reply]) -> bytes:
    """Serialise what a group of clients returns besides its rows; no bytes at all if there is nothing."""
    contents = [[reply.client_state, reply.buffers] for reply in replies]
    return pack(contents if any(state is not None or buffers for state, buffers in contents) else None)


def unpack_replies(payload: bytes, rows: Sequence[Tensor]) -> list[Reply]:
    """Return the replies of a group, given their rows and what `pack_replies` serialised."""
    contents = unpack(payload) or [(None, {})] * len(rows)
    return [Reply(row, client_state, buffers) for row, (client_state, buffers) in zip(rows, contents, strict=True)]


def use_one_thread() -> AbstractContextManager[None]:
    """Compute in one thread, so that the order of sums does not depend on the number of threads."""
    return use_threads(1)
