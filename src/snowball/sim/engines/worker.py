"""Worker process of `ProcessEngine`, and the connection to it."""

import os
import signal
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from snowball.attacks import Memory
from snowball.data import Split
from snowball.data.own import open_dataset, write_dataset
from snowball.errors import RunError
from snowball.models.own import pack_model, unpack_model
from snowball.serialization import pack
from snowball.sim.engines.base import pack_replies, unpack_message
from snowball.sim.engines.forkserver import GUARD_ADVICE, start_forkserver
from snowball.sim.engines.groups import GroupTraining
from snowball.sim.experiment import Experiment
from snowball.sim.faults import is_killed, is_slow
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply
from snowball.sim.training.evaluation import FederatedModel, build_test_splits

TASK_HEADER = struct.Struct("<??qqq")
"""Start of a task's message: whether it is tried again; True, round, number of clients and 0 to train; False, test
split, start and end to evaluate.

To train, a `MEMBER` per client follows. At the end come the client's state, the global buffers and the attack's
memory."""

MEMBER = struct.Struct("<qq")
"""Slot and number of a client to train."""

COUNT_MESSAGE = struct.Struct("<q")

OUT_OF_MEMORY_CODE = 71
"""Exit code of a worker that ran out of memory."""

MEMORY_WORDS = ("can't allocate memory", "not enough memory", "out of memory")
"""Parts of torch's errors for a lack of memory; on a CPU it raises a plain RuntimeError."""

STOP_SECONDS = 5.0
"""Seconds that a worker gets to stop before it is killed."""

RETRY_SECONDS = 0.1
"""Pause between two attempts to start a process."""

MAX_START_SECONDS = 3600.0
"""Seconds that a worker gets to start: the time to read the data has nothing to do with that to train a client."""


class Task(NamedTuple):
    """A task of a worker.

    Attributes:
        key: identifies the task to whoever asked for it.
        activity: what the worker does, for errors.
        numbers: the header of the message without its first entry.
        payload: the rest of the message.
        again: whether another worker was lost with this task.
        parts: the tasks of its clients, if it has several: they are tried instead if the worker is lost.
    """

    key: Any
    activity: str
    numbers: tuple[bool, int, int, int] = (False, 0, 0, 0)
    payload: bytes = b""
    again: bool = False
    parts: tuple["Task", ...] = ()

    def list_second_tries(self) -> list["Task"]:
        """List the tasks to try in other workers if this one is lost: one per client."""
        return [part._replace(again=True) for part in self.parts or (self,)]

    def pack(self) -> bytes:
        """Return the message that the worker receives."""
        return TASK_HEADER.pack(self.again, *self.numbers) + self.payload


STARTING = Task(None, "starting")


def make_training_task(members: Sequence[tuple[int, int]], round: int, payload: bytes) -> Task:
    """Make the task to train some clients, given as slot and client; its key is their slots."""
    slots, clients = zip(*members, strict=True)
    several = len(members) > 1
    return Task(
        key=slots,
        activity=f"training client{'s' * several} {', '.join(map(str, clients))}",
        numbers=(True, round, len(members), 0),
        payload=b"".join(MEMBER.pack(*member) for member in members) + payload,
        parts=tuple(make_training_task([member], round, payload) for member in members) if several else (),
    )


class WorkerLostError(RunError):
    """A worker hangs, was killed or ran out of memory: another worker may do its task."""


@dataclass(eq=False)
class Worker:
    """A worker process, the connection to it, its current task, and when that started."""

    process: BaseProcess
    connection: Connection
    task: Task = STARTING
    started: float = 0.0

    def send(self, task: Task) -> None:
        """Send a task; if the worker is dead, `receive` says so."""
        self.task, self.started = task, monotonic()
        with suppress(OSError):
            self.connection.send_bytes(task.pack())

    def wait_until_ready(self) -> None:
        """Wait until a new worker has opened its files."""
        self.connection.poll(MAX_START_SECONDS)
        self.receive()

    def receive(self) -> bytes:
        """Return the answer to the task; raise a WorkerLostError, or a RunError if the worker's own code failed."""
        try:
            if not self.connection.poll():
                waited = f"{monotonic() - self.started:.0f} s while {self.task.activity}"
                raise WorkerLostError(f"worker process {self.process.pid} gave no answer for {waited}")
            return self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            self._report_death(error)

    def _report_death(self, error: Exception) -> NoReturn:
        self.process.join(STOP_SECONDS)
        code = self.process.exitcode
        how = "ran out of memory" if code == OUT_OF_MEMORY_CODE else f"ended with exit code {code}"
        advice = f"; {GUARD_ADVICE}" if self.task is STARTING and code == 1 else ""
        kind = RunError if code == 1 else WorkerLostError  # 1: an exception, which another worker would raise, too
        raise kind(f"worker process {self.process.pid} {how} while {self.task.activity}{advice}") from error

    def kill(self) -> None:
        """Kill the process at once: one that hangs may not listen."""
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        """Stop the process, by force if needed."""
        self.connection.close()
        self.process.terminate()
        self.process.join(STOP_SECONDS)
        self.process.kill()
        self.process.join()
        self.process.close()  # its files stay open as long as anybody, such as a log, holds it


class WorkerInputs(NamedTuple):
    """What a worker process starts from, besides its connection.

    Attributes:
        settings: of the experiment.
        rows: the file of the shared rows.
        data: the file of the caller's own data; empty if the settings name a data set.
        model: the caller's own model, packed; empty if the settings name a model.
    """

    settings: dict[str, Any]
    rows: str
    data: str = ""
    model: bytes = b""

    @classmethod
    def write(cls, experiment: Experiment, rows: Path) -> Self:
        """Describe an experiment for workers, and write the caller's own data into a file beside the shared rows."""
        inputs = cls(experiment.dump_settings(), str(rows))
        if experiment.own_data is not None:
            inputs = inputs._replace(data=str(rows.with_name("data.safetensors")))
            write_dataset(experiment.own_data, Path(inputs.data))
        if experiment.own_model is not None:
            inputs = inputs._replace(model=pack_model(experiment.own_model))
        return inputs

    def hold_open(self, stack: ExitStack) -> Self:
        """Name the files by this process's open handles: they can be opened until `stack` closes, even if removed."""
        data = open_handle(self.data, stack) if self.data else ""
        return self._replace(rows=open_handle(self.rows, stack), data=data)

    def load_experiment(self) -> Experiment:
        """Load the experiment in a worker."""
        data = open_dataset(Path(self.data)) if self.data else None
        model = unpack_model(self.model) if self.model else None
        return Experiment.parse(self.settings).with_own(data, model)


def open_handle(path: str, stack: ExitStack) -> str:
    """Open a file until `stack` closes, and return the path by which other processes find the handle."""
    handle = os.open(path, os.O_RDONLY)
    stack.callback(os.close, handle)
    return f"/proc/{os.getpid()}/fd/{handle}"


def start_worker(inputs: WorkerInputs, timeout: float) -> Worker:
    """Start a worker; it sends an empty message once it is ready. A message takes `timeout` seconds at most."""
    ours, theirs = Pipe()
    limit_transfers(ours, timeout)
    process = start_process(inputs, theirs)
    theirs.close()  # so that the connection breaks when the worker dies
    return Worker(process, ours, started=monotonic())


def start_process(inputs: WorkerInputs, connection: Connection) -> BaseProcess:
    """Start a worker's process; try again for some seconds if the fork server ends meanwhile."""
    deadline = monotonic() + STOP_SECONDS
    while True:
        process = start_forkserver().Process(target=run_worker, args=(inputs, connection), daemon=True)
        try:
            process.start()
        except (ConnectionError, EOFError):  # it was killed, and is not yet known to be dead
            if monotonic() > deadline:
                raise
            sleep(RETRY_SECONDS)
        else:
            return process


def limit_transfers(connection: Connection, seconds: float) -> None:
    """Let a message that the other end does not take, or does not finish, end in an OSError after some seconds."""
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6) or 1)
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def run_worker(inputs: WorkerInputs, connection: Connection) -> None:
    """Answer tasks until the connection breaks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    experiment = inputs.load_experiment()
    federation = Federation.build(experiment)
    training, evaluation = GroupTraining(LocalTraining(federation)), WorkerEvaluation(federation)
    base, rows = open_shared_rows(Path(inputs.rows), experiment.cohort, federation.layout.width)
    connection.send_bytes(b"")
    try:
        while True:
            message = connection.recv_bytes()
            again, trains, *numbers = TASK_HEADER.unpack_from(message)
            content = message[TASK_HEADER.size :]
            if trains:
                round, count, _ = numbers
                slots, clients = zip(*MEMBER.iter_unpack(content[: count * MEMBER.size]), strict=True)
                if any(is_slow(experiment, client, round) for client in clients):
                    connection.poll(None)  # until the parent is gone, or kills this process
                    continue
                replies = train_clients(training, base, clients, round, *unpack_message(content[count * MEMBER.size :]))
                for slot, reply in zip(slots, replies, strict=True):
                    rows[slot] = reply.row
                if any(is_killed(experiment, client, round, again) for client in clients):
                    os.kill(os.getpid(), signal.SIGKILL)
                connection.send_bytes(pack_replies(replies))
            else:
                connection.send_bytes(COUNT_MESSAGE.pack(evaluation.count_correct(base, content, *numbers)))
    except (EOFError, OSError):
        pass  # the parent is gone


def train_clients(training: GroupTraining, *task: Any) -> list[Reply]:
    """Train clients; end the process with a code of its own if memory runs out."""
    try:
        return training(*task)
    except MemoryError:
        raise SystemExit(OUT_OF_MEMORY_CODE) from None
    except RuntimeError as error:
        if any(words in str(error) for words in MEMORY_WORDS):
            raise SystemExit(OUT_OF_MEMORY_CODE) from None
        raise


class WorkerEvaluation:
    """Evaluates parts of the test splits; the model is built when it is first needed, splits for each memory."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.memory: bytes | None = None
        self.splits: list[Split] = []

    @cached_property
    def model(self) -> FederatedModel:
        """Model to load global rows into."""
        return FederatedModel(self.federation)

    def count_correct(self, row: Tensor, payload: bytes, split: int, start: int, end: int) -> int:
        """Return how many samples from start to end of a test split a global model labels correctly.

        The payload holds the global buffers and the attack's memory.
        """
        _, self.model.buffers, memory = unpack_message(payload)
        self._renew_splits(memory)
        return self.model.count_correct(row, self.splits[split][torch.arange(start, end)])

    def _renew_splits(self, memory: Memory | None) -> None:
        """Build the test splits, in the order of `build_test_splits`, unless they are those of this memory."""
        if (packed := pack(memory)) != self.memory:
            self.memory, self.splits = packed, list(build_test_splits(self.federation, memory).values())


def open_shared_rows(file: Path, cohort: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the global row (d,) and the cohort's rows (K, d) in memory shared by all processes that open the file."""
    values = torch.from_file(str(file), shared=True, size=(1 + cohort) * width)
    return values[:width], values[width:].view(cohort, width)
