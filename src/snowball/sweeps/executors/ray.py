"""Runs as tasks on a Ray cluster: each is played in a temporary folder where a core is free, and sent back whole."""

import json
import os
import signal
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from logging import CRITICAL
from pathlib import Path
from time import monotonic
from typing import Any, TypedDict

from snowball.errors import MissingExtra, RunError
from snowball.records.files import make_folder, write_bytes
from snowball.records.run import ROUNDS, RUN, SUMMARY
from snowball.sim.engines.processes import cores
from snowball.sim.engines.ray_cluster import QUIET, require_cluster
from snowball.sim.experiment import Experiment
from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import News, fault_of

try:
    import ray
except ImportError as error:
    raise MissingExtra("--engine ray needs Ray: pip install 'snowball-fl[ray]'") from error

SENT = (RUN, ROUNDS, SUMMARY)
"""The files of a run that come back: the last says that the others are whole."""


class Answer(TypedDict):
    """What comes of a task: a run's files, or the sentence that it ended with; and how long it took."""

    files: dict[str, bytes]
    fault: str
    seconds: float


class OnRay:
    """Plays as many runs at a time as a cluster has cores, or as it is told; without an address, on a Ray of its own.

    A run that was stopped starts anew: what it had done is gone with its folder.
    """

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        self.asked, self.address = jobs, address
        self.jobs = jobs or 1

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[News]:
        """Play these runs, and tell of them; closing what this gives stops them."""
        waiting, playing = iter(runs), dict[Any, PlannedRun]()
        with connected(self.address, self.asked):
            task = ray.remote(num_cpus=1)(play)
            while True:
                self.jobs = self.asked or max(1, int(ray.cluster_resources().get("CPU", 1)))  # machines come and go
                for each in islice(waiting, max(0, self.jobs - len(playing))):
                    playing[task.remote(json.dumps(each.experiment.settings()))] = each
                if not playing:
                    return
                for reference in ray.wait(list(playing))[0]:
                    yield received(playing.pop(reference), reference, folder)


@contextmanager
def connected(address: str | None, jobs: int | None) -> Iterator[None]:
    """Be a driver of the cluster at an address, or of one of so many cores that is started for the purpose."""
    given = f"--address {address!r}"
    require_cluster(address or "", given)
    os.environ.update(QUIET)
    own = {} if address else {"num_cpus": jobs or cores(), "include_dashboard": False}
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", logging_level=CRITICAL, log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(f"{given if address else 'a Ray of its own'} cannot be used: {first_line(error)}") from error
    if signal.getsignal(signal.SIGTERM) is not on_termination:
        signal.signal(signal.SIGTERM, on_termination)  # Ray took it for itself
    try:
        yield
    finally:
        ray.shutdown()


def play(settings: str) -> Answer:
    """A task: one run, from its first round to its end."""
    import torch

    from snowball.sim.run import run

    torch.set_num_threads(1)
    started, files, fault = monotonic(), dict[str, bytes](), ""
    with tempfile.TemporaryDirectory(prefix="snowball-") as folder:
        try:
            for _ in run(Experiment.parse(json.loads(settings)), Path(folder)):
                pass
            files = {name: (Path(folder) / name).read_bytes() for name in SENT}
        except Exception as error:
            fault = fault_of(error)
    return {"files": files, "fault": fault, "seconds": monotonic() - started}


def received(planned: PlannedRun, reference: Any, folder: Path) -> News:
    """What came of a task, with its files in the run's folder."""
    try:
        answer: Answer = ray.get(reference)
    except ray.exceptions.RayError as error:
        return News(planned, 0, 0.0, True, f"its task was lost: {first_line(error)}")
    if answer["fault"]:
        return News(planned, 0, 0.0, True, answer["fault"])
    make_folder(folder / planned.name)
    for name in SENT:
        write_bytes(folder / planned.name / name, answer["files"][name])
    rounds = planned.experiment.rounds
    return News(planned, rounds, answer["seconds"] / rounds, True)


def first_line(error: Exception) -> str:
    """The first line of what may be many."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
