"""Engine that trains clients in worker processes on all cores.

Rows are bit for bit those of `SerialEngine`, whatever the number of workers: the training of a client depends on the
global row, the client and the round, and on nothing that ran before it.
"""

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from snowball.buffers import Buffers
from snowball.models.own import find_transfer_fault
from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import Engine, pack_message, unpack_message
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.worker import (
    COUNT_MESSAGE,
    TASK_HEADER,
    Task,
    Worker,
    WorkerInputs,
    open_shared_rows,
    start_worker,
)
from snowball.sim.federation import Federation
from snowball.sim.training.client import Reply
from snowball.sim.training.evaluation import EVALUATION_BATCH, build_test_splits

SAMPLES_PER_TASK = 5 * EVALUATION_BATCH
"""Samples that a worker evaluates per task: whole batches, so that the results do not depend on who evaluates them."""

WRITE_BYTES = 1 << 20


class ProcessEngine(Engine):
    """Trains clients in worker processes of one thread each.

    The workers write their rows into a shared file. A task is a few integers, unless clients keep a state or the model
    has buffers.
    """

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.experiment = federation.experiment
        self.examples = [len(part) for part in federation.parts]
        self.test_sizes = {name: len(split) for name, split in build_test_splits(federation).items()}
        self.worker_count = min(workers, self.experiment.cohort)
        self.width = federation.layout.width
        self.workers: list[Worker] = []
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="snowball-") as folder:
            file = Path(folder) / "rows"
            reserve_file(file, 4 * self.width * (1 + self.experiment.cohort))
            self.base, self.rows = open_shared_rows(file, self.experiment.cohort, self.width)
            inputs = WorkerInputs.write(self.experiment, file)
            for _ in range(self.worker_count):
                self.workers.append(start_worker(inputs))
                stack.callback(self.workers[-1].stop)
            for worker in self.workers:
                worker.receive()  # it has opened the files, which can now be removed
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.workers.clear()
        self.stack.close()

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Let the workers train the clients; a reply's row is the one that its worker wrote into shared memory."""
        self.base.copy_(state.base)
        for slot, payload in self._run_tasks(self._list_training_tasks(state, cohort, round)):
            yield slot, Reply(self.rows[slot], *unpack_message(payload))

    def count_correct(self, row: Tensor, buffers: Buffers) -> dict[str, int]:
        """Return how many samples of each test split a global model labels correctly."""
        self.base.copy_(row)
        counts = dict.fromkeys(self.test_sizes, 0)
        for name, count in self._run_tasks(self._list_evaluation_tasks(buffers)):
            counts[name] += COUNT_MESSAGE.unpack(count)[0]
        return counts

    def _list_training_tasks(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[Task]:
        """Yield one task per client, the largest clients first, which leaves the shortest wait at the end."""
        for slot in sorted(range(len(cohort)), key=lambda slot: -self.examples[cohort[slot]]):
            client = cohort[slot]
            payload = pack_message(state.clients.get(str(client)), state.buffers)
            yield Task(slot, f"training client {client}", TASK_HEADER.pack(True, slot, client, round) + payload)

    def _list_evaluation_tasks(self, buffers: Buffers) -> Iterator[Task]:
        payload = pack_message(None, buffers)
        for number, (name, size) in enumerate(self.test_sizes.items()):
            for start in range(0, size, SAMPLES_PER_TASK):
                end = min(start + SAMPLES_PER_TASK, size)
                yield Task(name, "evaluating", TASK_HEADER.pack(False, number, start, end) + payload)

    def _run_tasks(self, tasks: Iterator[Task]) -> Iterator[tuple[Any, bytes]]:
        """Give each task to an idle worker, and yield the keys and answers of tasks as they finish."""
        idle, busy = list(self.workers), dict[Any, Worker]()
        while True:
            for worker, task in zip(list(idle), tasks, strict=False):
                idle.remove(worker)
                worker.send(task)
                busy[worker.connection] = worker
            if not busy:
                return
            for connection in wait(list(busy)):
                idle.append(busy.pop(connection))
                yield idle[-1].task.key, idle[-1].receive()


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
