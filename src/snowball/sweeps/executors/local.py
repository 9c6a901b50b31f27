"""Executes runs in parallel on this machine, each in its own process, which has one thread and ends with its parent."""

import json
import os
import signal
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import torch

from snowball.errors import RunError, SnowballError
from snowball.records.lock import shared_lock
from snowball.settings import Settings
from snowball.sim.engines.forkserver import GUARD_ADVICE, start_forkserver
from snowball.sim.engines.worker import STOP_SECONDS
from snowball.sim.experiment import Experiment
from snowball.sim.run import run_experiment
from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import JobEvent, describe_failure


@dataclass(eq=False)
class RunningJob:
    """A run's process, the connection from it, and its last message."""

    run: PlannedRun
    process: BaseProcess
    connection: Connection
    updated: float
    started: bool = False
    round: int = 0
    finished: bool = False
    fault: str = ""

    def receive(self) -> JobEvent:
        """Read a message, or notice that the process ended."""
        before, round, self.updated = self.updated, self.round, monotonic()
        try:
            self.round, self.finished, self.fault = json.loads(self.connection.recv_bytes())
            self.started = True
        except (EOFError, OSError):
            self.process.join(STOP_SECONDS)
            if not self.started and self.process.exitcode == 1:
                raise RunError(f"the process of a run ended before the run started; {GUARD_ADVICE}") from None
            return JobEvent(
                self.run, self.round, 0.0, True, "" if self.finished else self.fault or self.describe_exit()
            )
        return JobEvent(self.run, self.round, self.updated - before if self.round > round else 0.0)

    def describe_exit(self) -> str:
        """Say how the process ended, if it sent no reason."""
        code = self.process.exitcode
        how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        advice = "; is there enough memory for so many jobs?" if code == -signal.SIGKILL else ""
        return f"its process {how} after round {self.round} of {self.run.experiment.rounds}{advice}"


class LocalExecutor:
    """Executes `jobs` runs at a time; each resumes from its checkpoint, if it has one."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[JobEvent]:
        """Execute the runs and yield their events; closing the generator stops them."""
        waiting, running = iter(runs), dict[Any, RunningJob]()
        try:
            while True:
                for each in islice(waiting, self.jobs - len(running)):
                    started = start_job(each, folder)
                    running[started.connection] = started
                if not running:
                    return
                for connection in wait(list(running)):
                    event = running[connection].receive()
                    if event.ended:
                        running.pop(connection).connection.close()
                    yield event
        finally:
            stop_jobs(running.values())


def start_job(planned: PlannedRun, folder: Path) -> RunningJob:
    """Start a run's process."""
    context = start_forkserver()
    ours, theirs = context.Pipe()
    settings = planned.experiment.dump_settings()
    process = context.Process(target=run_job, args=(settings, str(folder / planned.name), theirs), daemon=True)
    process.start()
    theirs.close()  # so that the connection closes when the process ends
    return RunningJob(planned, process, ours, monotonic())


def stop_jobs(jobs: Collection[RunningJob]) -> None:
    """Terminate processes, and kill those that do not end."""
    for each in jobs:
        each.process.terminate()
    for each in jobs:
        each.process.join(STOP_SECONDS)
        each.process.kill()
        each.process.join()
        each.connection.close()


def run_job(settings: Settings, path: str, connection: Connection) -> None:
    """Execute one run in this process, from its checkpoint to its end, and send its progress."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    Thread(target=leave_with_parent, args=(connection,), daemon=True).start()
    torch.set_num_threads(1)
    round = 0
    send_progress(connection, round)
    try:
        with shared_lock(Path(path).parent):
            for record in run_experiment(Experiment.parse(settings), Path(path), resume=True):
                round = record["round"]
                send_progress(connection, round)
        send_progress(connection, round, finished=True)
    except Exception as error:
        send_progress(connection, round, fault=describe_failure(error))
        if not isinstance(error, SnowballError):
            raise  # a bug: its traceback helps whoever fixes it


def send_progress(connection: Connection, round: int, finished: bool = False, fault: str = "") -> None:
    """Send a run's progress to the parent."""
    connection.send_bytes(json.dumps([round, finished, fault]).encode())


def leave_with_parent(connection: Connection) -> None:
    """End this process when its parent ends: another sweep may then use the folder."""
    try:
        connection.recv_bytes()  # the parent never sends anything
    except (EOFError, OSError):
        os._exit(1)
