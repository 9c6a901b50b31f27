"""The engine that uses all cores.

Rows are those of `Serial` bit for bit, whatever the number of workers: each client's training depends on the global
row, its number and the round, and on nothing that ran before it.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from snowball.buffers import Buffers
from snowball.records.checkpoint import State
from snowball.sim.engines.base import Engine, stow, unstow
from snowball.sim.engines.worker import COUNT, TASK, Task, Worker, shared_rows, start
from snowball.sim.federation import Federation
from snowball.sim.training.client import Reply
from snowball.sim.training.evaluation import BATCH, measures

SHARE = 5 * BATCH
"""Samples that a worker evaluates at a time: whole batches, so that whoever does it, the results are the same."""

CHUNK = 1 << 20


class Processes(Engine):
    """Workers of one thread each; rows are written into a shared file, and a task is a few integers."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.experiment = federation.experiment
        self.examples = [len(part) for part in federation.parts]
        self.measures = {name: len(split) for name, split in measures(federation).items()}
        self.count = min(workers, self.experiment.cohort)
        self.width = federation.layout.width
        self.workers: list[Worker] = []
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="snowball-") as folder:
            file = Path(folder) / "rows"
            reserve(file, 4 * self.width * (1 + self.experiment.cohort))
            self.base, self.rows = shared_rows(file, self.experiment.cohort, self.width)
            for _ in range(self.count):
                self.workers.append(start(self.experiment, file))
                stack.callback(self.workers[-1].stop)
            for worker in self.workers:
                worker.receive()  # it has opened the file, which can go
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.workers.clear()
        self.stack.close()

    def train(self, state: State, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Let the workers train the clients; a reply's row is the one that its worker wrote into shared memory."""
        self.base.copy_(state.base)
        for slot, luggage in self._done(self._training(state, cohort, round)):
            yield slot, Reply(self.rows[slot], *unstow(luggage))

    def right(self, row: Tensor, buffers: Buffers) -> dict[str, int]:
        """How many samples of each measure a global model labels right."""
        self.base.copy_(row)
        counts = dict.fromkeys(self.measures, 0)
        for name, count in self._done(self._counting(buffers)):
            counts[name] += COUNT.unpack(count)[0]
        return counts

    def _training(self, state: State, cohort: Sequence[int], round: int) -> Iterator[Task]:
        """The tasks of a round, the largest first: the smallest leave the shortest wait at the end."""
        for slot in sorted(range(len(cohort)), key=lambda slot: -self.examples[cohort[slot]]):
            client = cohort[slot]
            luggage = stow(state.clients.get(str(client)), state.buffers)
            yield Task(slot, f"trained client {client}", TASK.pack(True, slot, client, round) + luggage)

    def _counting(self, buffers: Buffers) -> Iterator[Task]:
        """The tasks of an evaluation."""
        luggage = stow(None, buffers)
        for number, (name, size) in enumerate(self.measures.items()):
            for first in range(0, size, SHARE):
                yield Task(name, "evaluated", TASK.pack(False, number, first, min(first + SHARE, size)) + luggage)

    def _done(self, tasks: Iterator[Task]) -> Iterator[tuple[Any, bytes]]:
        """Have the tasks done, by whoever is idle; whose each was and what came of it, as they come."""
        idle, busy = list(self.workers), dict[Any, Worker]()
        while True:
            for worker, task in zip(list(idle), tasks, strict=False):
                idle.remove(worker)
                worker.send(task)
                busy[worker.line] = worker
            if not busy:
                return
            for line in wait(list(busy)):
                idle.append(busy.pop(line))
                yield idle[-1].task.key, idle[-1].receive()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reserve(file: Path, size: int) -> None:
    """Make a file of this size that the disk has room for."""
    with file.open("wb") as content:
        for start in range(0, size, CHUNK):
            content.write(bytes(min(CHUNK, size - start)))
