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
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.data import Split
from snowball.errors import RunError
from snowball.pytree import pack, unpack
from snowball.sim.evaluate import BATCH, FederatedModel, measures
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.local import LocalTraining
from snowball.sim.state import Memory, State

TASK = struct.Struct("<?qqq")
"""All that a worker is told, but for what a client keeps and global buffers: to train, and then the slot in the cohort,
client and round; or to count what is right, and then in which measure, from which sample, to which."""

COUNT = struct.Struct("<q")

SHARE = 5 * BATCH
"""Samples that a worker evaluates at a time: whole batches, so that whoever does it, the results are the same."""

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


class Task(NamedTuple):
    """What a worker is to do: whose it is, in words, and the message that asks for it."""

    key: Any
    words: str
    message: bytes


STARTING = Task(None, "started", b"")


@dataclass(eq=False)
class Worker:
    """A process, the line to it, and what it does now."""

    process: BaseProcess
    line: Connection
    task: Task = STARTING

    def send(self, task: Task) -> None:
        """Hand over a task."""
        self.task = task
        with self._alive():
            self.line.send_bytes(task.message)

    def receive(self) -> bytes:
        """Wait until the task is done, for what comes of it."""
        with self._alive():
            return self.line.recv_bytes()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.process.join(GRACE)
            code = f"exit code {self.process.exitcode}"
            raise RunError(f"worker process {self.process.pid} ended with {code} while it {self.task.words}") from error

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

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        learnt: Memory = {}
        trained: dict[int, Buffers] = {}
        self.base.copy_(state.base)
        for slot, luggage in self._done(self._training(state, cohort, round)):
            learnt[str(cohort[slot])], trained[slot] = unstow(luggage)
        remember(state.clients, learnt)
        return Replies(self.rows, [trained[slot] for slot in range(len(cohort))])

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
            for start in range(0, size, SHARE):
                yield Task(name, "evaluated", TASK.pack(False, number, start, min(start + SHARE, size)) + luggage)

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
    federation = Federation.of(experiment)
    training, evaluating = LocalTraining(federation), Evaluating(federation)
    base, rows = shared_rows(Path(file), experiment.cohort, federation.layout.width)
    line.send_bytes(b"")
    try:
        while True:
            message = line.recv_bytes()
            trains, *numbers = TASK.unpack_from(message)
            kept, buffers = unstow(message[TASK.size :])
            if trains:
                slot, client, round = numbers
                reply = training(base, client, round, kept, buffers)
                rows[slot] = reply.row
                line.send_bytes(stow(reply.kept, reply.buffers))
            else:
                line.send_bytes(COUNT.pack(evaluating(base, buffers, *numbers)))
    except (EOFError, OSError):
        pass  # the parent is gone


class Evaluating:
    """A worker's part in an evaluation; what it needs is made when it is first asked."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    @cached_property
    def model(self) -> FederatedModel:
        """The model to load global rows into."""
        return FederatedModel(self.federation)

    @cached_property
    def splits(self) -> list[Split]:
        """What is measured."""
        return list(measures(self.federation).values())

    def __call__(self, row: Tensor, buffers: Buffers, measure: int, start: int, end: int) -> int:
        """How many of some samples are labelled right."""
        self.model.buffers = buffers
        return self.model.right(row, self.splits[measure][torch.arange(start, end)])


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
