"""Engine that trains clients in worker processes on all cores.

Rows are bit for bit those of `SerialEngine`, whatever the number of workers: the training of a client depends on the
global row, the client and the round, and on nothing that ran before it.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from torch import Tensor

from snowball.attacks import Memory
from snowball.buffers import Buffers
from snowball.errors import RunError
from snowball.models.own import find_transfer_fault
from snowball.records.checkpoint import RunState
from snowball.records.drafts import temporary_folder
from snowball.sim.engines.base import Engine, pack_message, unpack_replies
from snowball.sim.engines.groups import allows_groups, split_evenly
from snowball.sim.engines.pool import WorkerPool
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.worker import COUNT_MESSAGE, Task, Worker, WorkerInputs, make_training_task, open_shared_rows
from snowball.sim.federation import Federation
from snowball.sim.training.client import Reply
from snowball.sim.training.evaluation import EVALUATION_BATCH, build_test_splits

SAMPLES_PER_TASK = 5 * EVALUATION_BATCH
"""Samples that a worker evaluates per task: whole batches, so that the results do not depend on who evaluates them."""

WRITE_BYTES = 1 << 20


class ProcessEngine(Engine):
    """Trains clients in worker processes of one thread each.

    The workers write their rows into a shared file. A task is a few integers, unless clients keep a state, the model
    has buffers or the attack has a memory. It is one client, or a group for models that `allows_groups` knows. A client
    fails if its worker dies or hangs, and so does a second one.
    """

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.experiment = federation.experiment
        self.examples = [len(part) for part in federation.parts]
        self.test_sizes = {name: len(split) for name, split in build_test_splits(federation).items()}
        self.worker_count = min(workers, self.experiment.cohort)
        self.width = federation.layout.width
        self.in_groups = allows_groups(federation)
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack, temporary_folder() as folder:
            file = folder / "rows"
            reserve_file(file, 4 * self.width * (1 + self.experiment.cohort))
            self.base, self.rows = open_shared_rows(file, self.experiment.cohort, self.width)
            inputs = WorkerInputs.write(self.experiment, file)
            self.pool = WorkerPool(inputs, self.experiment.timeout)
            stack.callback(self.pool.stop)
            self.pool.start(self.worker_count)
            self.pool.inputs = inputs.hold_open(stack)  # the files can now be removed
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    @property
    def workers(self) -> list[Worker]:
        """The worker processes."""
        return self.pool.workers

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Let the workers train the clients; a reply's row is the one that its worker wrote into shared memory."""
        self.base.copy_(state.base)
        for task, payload in self.pool.run(self._list_training_tasks(state, cohort, round)):
            if payload is not None:
                rows = [self.rows[slot] for slot in task.key]
                yield from zip(task.key, unpack_replies(payload, rows), strict=True)

    def count_correct(self, row: Tensor, buffers: Buffers, memory: Memory | None = None) -> dict[str, int]:
        """Return how many samples of each test split a global model labels correctly."""
        self.base.copy_(row)
        counts = dict.fromkeys(self.test_sizes, 0)
        for task, count in self.pool.run(self._list_evaluation_tasks(pack_message(None, buffers, memory))):
            if count is None:
                raise RunError("two worker processes in a row failed while evaluating; --resume continues the run")
            counts[task.key] += COUNT_MESSAGE.unpack(count)[0]
        return counts

    def _list_training_tasks(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[Task]:
        """Yield one task per group, the largest clients first, which leaves the shortest wait at the end."""
        slots = sorted(range(len(cohort)), key=lambda slot: -self.examples[cohort[slot]])
        for group in split_evenly(slots, self.worker_count) if self.in_groups else [[slot] for slot in slots]:
            members = [(slot, cohort[slot]) for slot in group]
            client_state = None if self.in_groups else state.clients.get(str(cohort[group[0]]))
            yield make_training_task(members, round, pack_message(client_state, state.buffers, state.attack))

    def _list_evaluation_tasks(self, payload: bytes) -> Iterator[Task]:
        for number, (name, size) in enumerate(self.test_sizes.items()):
            for start in range(0, size, SAMPLES_PER_TASK):
                end = min(start + SAMPLES_PER_TASK, size)
                yield Task(name, "evaluating", (False, number, start, end), payload)


def make_process_engine(federation: Federation, workers: int) -> Engine:
    """Return a `ProcessEngine`, or a `SerialEngine` with a warning if workers cannot receive the caller's own model."""
    model = federation.experiment.own_model
    if model is None or not (fault := find_transfer_fault(model)):
        return ProcessEngine(federation, workers)
    reason = f"no worker process can get the model ({fault}): define it in a module to train on all cores"
    warnings.warn(f"clients train one after the other, since {reason}", stacklevel=2)
    return SerialEngine(federation)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reserve_file(file: Path, size: int) -> None:
    """Write a file of this many bytes, so that a full disk shows here and not in a worker."""
    with file.open("wb") as content:
        for start in range(0, size, WRITE_BYTES):
            content.write(bytes(min(WRITE_BYTES, size - start)))
