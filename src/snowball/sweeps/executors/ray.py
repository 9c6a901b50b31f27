"""Executes runs as tasks on a Ray cluster, each in a temporary folder on one core, and copies their files back."""

import json
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from logging import CRITICAL
from pathlib import Path
from time import monotonic
from typing import Any, TypedDict

from snowball.errors import MissingExtra, RunError
from snowball.records.drafts import temporary_folder
from snowball.records.files import make_folder, write_bytes
from snowball.records.run import ROUNDS, RUN, SUMMARY
from snowball.sim.engines.processes import count_cores
from snowball.sim.engines.ray_cluster import RAY_ENVIRONMENT, require_cluster
from snowball.sim.experiment import Experiment
from snowball.sweeps.grid import PlannedRun
from snowball.sweeps.sweep import JobEvent, describe_failure

try:
    import ray
except ImportError as error:
    raise MissingExtra("--engine ray needs Ray: pip install 'ray>=2.55'") from error

RESULT_FILES = (RUN, ROUNDS, SUMMARY)
"""The files to copy back; the summary comes last and marks the others as complete."""


class JobResult(TypedDict):
    """A task's result: the run's files or one sentence on why it failed, and its seconds."""

    files: dict[str, bytes]
    fault: str
    seconds: float


class RayExecutor:
    """Executes `jobs` runs at a time (default: the cluster's cores); starts a local Ray if there is no address.

    A run that was stopped starts again: its checkpoint is lost with its temporary folder.
    """

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        self.asked, self.address = jobs, address
        self.jobs = jobs or 1

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[JobEvent]:
        """Execute the runs and yield their events; closing the generator stops them."""
        waiting, running = iter(runs), dict[Any, PlannedRun]()
        with connect_to_cluster(self.address, self.asked):
            task = ray.remote(num_cpus=1)(run_task)
            while True:
                self.jobs = self.asked or max(1, int(ray.cluster_resources().get("CPU", 1)))  # machines come and go
                for each in islice(waiting, max(0, self.jobs - len(running))):
                    running[task.remote(json.dumps(each.experiment.dump_settings()))] = each
                if not running:
                    return
                for reference in ray.wait(list(running))[0]:
                    yield receive_result(running.pop(reference), reference, folder)


@contextmanager
def connect_to_cluster(address: str | None, jobs: int | None) -> Iterator[None]:
    """Connect to the cluster at an address, or start a local one with a core per job."""
    given = f"--address {address!r}"
    require_cluster(address or "", given)
    os.environ.update(RAY_ENVIRONMENT)
    own = {} if address else {"num_cpus": jobs or count_cores(), "include_dashboard": False}
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", logging_level=CRITICAL, log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(f"{given if address else 'a local Ray'} cannot be used: {get_first_line(error)}") from error
    if signal.getsignal(signal.SIGTERM) is not on_termination:
        signal.signal(signal.SIGTERM, on_termination)  # Ray replaces it
    try:
        yield
    finally:
        ray.shutdown()


def run_task(settings: str) -> JobResult:
    """Execute one run, from its first round to its end."""
    import torch

    from snowball.sim.run import run_experiment

    torch.set_num_threads(1)
    started, files, fault = monotonic(), dict[str, bytes](), ""
    with temporary_folder() as folder:
        try:
            for _ in run_experiment(Experiment.parse(json.loads(settings)), folder):
                pass
            files = {name: (folder / name).read_bytes() for name in RESULT_FILES}
        except Exception as error:
            fault = describe_failure(error)
    return {"files": files, "fault": fault, "seconds": monotonic() - started}


def receive_result(planned: PlannedRun, reference: Any, folder: Path) -> JobEvent:
    """Copy a task's files into the run's folder and return the run's last event."""
    try:
        result: JobResult = ray.get(reference)
    except ray.exceptions.RayError as error:
        return JobEvent(planned, 0, 0.0, True, f"its task was lost: {get_first_line(error)}")
    if result["fault"]:
        return JobEvent(planned, 0, 0.0, True, result["fault"])
    make_folder(folder / planned.name)
    for name in RESULT_FILES:
        write_bytes(folder / planned.name / name, result["files"][name])
    rounds = planned.experiment.rounds
    return JobEvent(planned, rounds, result["seconds"] / rounds, True)


def get_first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
