"""Runs side by side on this machine, each in a process of its own, which has one thread and ends with its parent."""

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

from snowball.errors import SnowballError
from snowball.settings import Settings
from snowball.sim.engines.forkserver import warm
from snowball.sim.engines.worker import GRACE
from snowball.sim.experiment import Experiment
from snowball.sim.run import run
from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.lock import belonging
from snowball.sweeps.sweep import News, fault_of


@dataclass(eq=False)
class Playing:
    """A run's process, the line from it, and what was last heard."""

    run: PlannedRun
    process: BaseProcess
    line: Connection
    heard: float
    round: int = 0
    finished: bool = False
    fault: str = ""

    def listen(self) -> News:
        """What there is to hear: a message, or that the line is broken."""
        before, round, self.heard = self.heard, self.round, monotonic()
        try:
            self.round, self.finished, self.fault = json.loads(self.line.recv_bytes())
        except (EOFError, OSError):
            self.process.join(GRACE)
            return News(self.run, self.round, 0.0, True, "" if self.finished else self.fault or self.death())
        return News(self.run, self.round, self.heard - before if self.round > round else 0.0)

    def death(self) -> str:
        """How the process ended, where it did not say."""
        code = self.process.exitcode
        how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        advice = "; is there memory enough for so many jobs?" if code == -signal.SIGKILL else ""
        return f"its process {how} after round {self.round} of {self.run.experiment.rounds}{advice}"


class SideBySide:
    """Plays so many runs at a time; each goes on where its checkpoint left it, however that came about."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[News]:
        """Play these runs, and tell of them; closing what this gives stops them."""
        waiting, playing = iter(runs), dict[Any, Playing]()
        try:
            while True:
                for each in islice(waiting, self.jobs - len(playing)):
                    started = start(each, folder)
                    playing[started.line] = started
                if not playing:
                    return
                for line in wait(list(playing)):
                    news = playing[line].listen()
                    if news.ended:
                        playing.pop(line).line.close()
                    yield news
        finally:
            stop(playing.values())


def start(planned: PlannedRun, folder: Path) -> Playing:
    """A run on its way."""
    context = warm()
    ours, theirs = context.Pipe()
    settings = planned.experiment.settings()
    process = context.Process(target=play, args=(settings, str(folder / planned.name), theirs), daemon=True)
    process.start()
    theirs.close()  # so that the line breaks when the process ends
    return Playing(planned, process, ours, monotonic())


def stop(playing: Collection[Playing]) -> None:
    """End processes, by force if they do not go."""
    for each in playing:
        each.process.terminate()
    for each in playing:
        each.process.join(GRACE)
        each.process.kill()
        each.process.join()
        each.line.close()


def play(settings: Settings, path: str, line: Connection) -> None:
    """A process's life: one run, from its checkpoint to its end; the line says how it goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    Thread(target=leave_with_parent, args=(line,), daemon=True).start()
    torch.set_num_threads(1)
    round = 0
    try:
        with belonging(Path(path).parent):
            for record in run(Experiment.parse(settings), Path(path), resume=True):
                round = record["round"]
                tell(line, round)
        tell(line, round, finished=True)
    except Exception as error:
        tell(line, round, fault=fault_of(error))
        if not isinstance(error, SnowballError):
            raise  # whose traceback is for whoever wrote the code


def tell(line: Connection, round: int, finished: bool = False, fault: str = "") -> None:
    """Say how a run goes."""
    line.send_bytes(json.dumps([round, finished, fault]).encode())


def leave_with_parent(line: Connection) -> None:
    """End this process when nobody is left at the other end: it would write into a folder that others may take over."""
    try:
        line.recv_bytes()  # which says nothing, ever
    except (EOFError, OSError):
        os._exit(1)
