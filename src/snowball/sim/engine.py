"""Engines: ways to train a round's cohort, which differ in speed alone.

`Serial` is the definition. `Processes` gives the same rows bit for bit, whatever the number of workers: each client's
training depends on the global row, its number and the round, and on nothing that ran before it.
"""

import multiprocessing
import os
import signal
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.errors import RunError
from snowball.pytree import pack, unpack
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.local import LocalTraining
from snowball.sim.state import Memory, State

TASK = struct.Struct("<qqq")
"""Slot in the cohort, client, round: all that a worker is told, but for what a client keeps and global buffers."""

GRACE = 5.0
"""Seconds that a worker gets to go before it is killed."""

CHUNK = 1 << 20


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

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        ...


class Serial:
    """One client after the other, in this process."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.device = device
        self.training = LocalTraining(federation, device)
        self.rows = torch.empty(federation.experiment.cohort, self.training.trainer.layout.width)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

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


@dataclass(eq=False)
class Worker:
    """A process, the line to it, and the client that it trains now."""

    process: BaseProcess
    line: Connection
    client: int | None = None

    def send(self, slot: int, client: int, round: int, luggage: bytes) -> None:
        """Hand over a task, and what the client's training starts with beside the global row."""
        self.client = client
        with self._alive():
            self.line.send_bytes(TASK.pack(slot, client, round) + luggage)

    def receive(self) -> bytes:
        """Wait until the task is done, for what the training gives beside a row."""
        with self._alive():
            luggage = self.line.recv_bytes()
        self.client = None
        return luggage

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.process.join(GRACE)
            task = "while it started" if self.client is None else f"while it trained client {self.client}"
            code = f"exit code {self.process.exitcode}"
            raise RunError(f"worker process {self.process.pid} ended with {code} {task}") from error

    def stop(self) -> None:
        """End the process, by force if it does not go."""
        self.line.close()
        self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()


class Processes:
    """Workers of one thread each; rows are written into a shared file, and a task is three integers."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.experiment = federation.experiment
        self.examples = [len(part) for part in federation.parts]
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

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        learnt: Memory = {}
        trained: dict[str, Buffers] = {}
        self.base.copy_(state.base)
        slots = sorted(range(len(cohort)), key=lambda slot: self.examples[cohort[slot]])  # the largest is taken first
        busy: dict[Any, Worker] = {}
        idle = list(self.workers)
        while slots or busy:
            while slots and idle:
                worker, slot = idle.pop(), slots.pop()
                luggage = stow(state.clients.get(str(cohort[slot])), state.buffers)
                worker.send(slot, cohort[slot], round, luggage)
                busy[worker.line] = worker
            for line in wait(list(busy)):
                idle.append(busy.pop(line))
                client = str(idle[-1].client)
                learnt[client], trained[client] = unstow(idle[-1].receive())
        remember(state.clients, learnt)
        return Replies(self.rows, [trained[str(client)] for client in cohort])


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


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(experiment: Experiment, file: Path) -> Worker:
    """A worker on its way; it says one word when it is ready."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that torch is imported once for all workers
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(experiment.settings(), str(file), theirs), daemon=True)
    process.start()
    theirs.close()  # so that the line breaks when the worker dies
    return Worker(process, ours)


def work(settings: dict[str, Any], file: str, line: Connection) -> None:
    """A worker's life: train what is asked for until the line breaks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    experiment = Experiment.parse(settings)
    training = LocalTraining(Federation.of(experiment))
    base, rows = shared_rows(Path(file), experiment.cohort, training.trainer.layout.width)
    line.send_bytes(b"")
    try:
        while True:
            task = line.recv_bytes()
            slot, client, round = TASK.unpack_from(task)
            reply = training(base, client, round, *unstow(task[TASK.size :]))
            rows[slot] = reply.row
            line.send_bytes(stow(reply.kept, reply.buffers))
    except (EOFError, OSError):
        pass  # the parent is gone


def reserve(file: Path, size: int) -> None:
    """Make a file of this size that the disk has room for."""
    with file.open("wb") as content:
        for start in range(0, size, CHUNK):
            content.write(bytes(min(CHUNK, size - start)))


def shared_rows(file: Path, cohort: int, width: int) -> tuple[Tensor, Tensor]:
    """The global row (d,) and the cohort's rows (K, d), in memory that all who open the file share."""
    values = torch.from_file(str(file), shared=True, size=(1 + cohort) * width)
    return values[:width], values[width:].view(cohort, width)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order: the results of a thread pool depend on its size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
