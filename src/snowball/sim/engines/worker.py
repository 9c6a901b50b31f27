"""A process that trains and evaluates for the engine `Processes`, and the line to it."""

import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.data import Split
from snowball.errors import RunError
from snowball.sim.engines.base import stow, unstow
from snowball.sim.engines.forkserver import warm
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.evaluation import FederatedModel, measures

TASK = struct.Struct("<?qqq")
"""All that a worker is told, but for what a client keeps and global buffers: to train, and then the slot in the cohort,
client and round; or to count what is right, and then in which measure, from which sample, to which."""

COUNT = struct.Struct("<q")

GRACE = 5.0
"""Seconds that a worker gets to go before it is killed."""


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


def start(experiment: Experiment, file: Path) -> Worker:
    """A worker on its way; it says one word when it is ready."""
    context = warm()
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


def shared_rows(file: Path, cohort: int, width: int) -> tuple[Tensor, Tensor]:
    """The global row (d,) and the cohort's rows (K, d), in memory that all who open the file share."""
    values = torch.from_file(str(file), shared=True, size=(1 + cohort) * width)
    return values[:width], values[width:].view(cohort, width)
