"""A run of seconds with faults of its own, and processes that are killed while they work on it."""

import json
import os
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from snowball.records.run import RunFolder
from snowball.sim.engines.forkserver import start_forkserver
from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment

PATIENCE_SECONDS = 120.0

SMALL_RUN = load_experiment(
    "demo",
    [
        "rounds=6",
        "cohort=6",
        "data.clients=8",
        "data.examples=240",
        "data.minimum=5",
        "training.epochs=1",
        "attack.malicious=0.25",
        "defense.name=snowball-plus",
        "faults.dropped=0.1",
        "faults.duplicated=0.1",
        "faults.corrupted=0.1",
    ],
)
"""Small, with a defense that remembers its clients."""


def read_results(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the records and the summary of a run, without the time that it took."""
    folder = RunFolder.open(path)
    summary = json.loads((path / "summary.json").read_bytes())
    return [{**record, "seconds": None} for record in folder.read_rounds()], {**summary, "seconds": None}


def start_run(path: Path, last_step: int = 0) -> BaseProcess:
    """Start or continue the run in a process of its own, which dies at a step on the disk if one is given."""
    process = start_forkserver().Process(target=run_until_step, args=(str(path), last_step), daemon=True)
    process.start()
    return process


def run_until_step(path: str, last_step: int) -> None:
    """Continue a run; kill this process when it opens, renames, cuts or removes a file of the run for the nth time."""
    torch.set_num_threads(1)
    steps = 0

    def count_step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal steps
        if event in ("open", "os.rename", "os.truncate", "os.remove") and path in str(arguments[0]):
            steps += 1
            if steps == last_step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count_step)
    list(run_experiment(SMALL_RUN, Path(path), resume=True))


def wait_for_end(process: BaseProcess) -> int | None:
    """Wait until a process ends, and return its exit code."""
    process.join(PATIENCE_SECONDS)
    return process.exitcode
