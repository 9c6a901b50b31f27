"""The command `snowball run`, stopped in every possible way, resumes. `tests/faults` kills runs far more often."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowball.records.run import RunFolder
from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment

ASSIGNMENTS = [
    "rounds=12",
    "cohort=6",
    "data.clients=8",
    "data.examples=400",
    "training.epochs=1",
    "attack.malicious=0.25",
    "defense.name=snowball",
    "defense.clusters=3",
]
PATIENCE = 120.0


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rounds of a run that nobody stopped."""
    path = tmp_path_factory.mktemp("whole")
    list(run_experiment(load_experiment("demo", ASSIGNMENTS), path))
    return timeless(path)


def timeless(path: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in r.items() if name != "seconds"} for r in RunFolder.open(path).read_rounds()]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`snowball run` in a process group of its own."""
    changes = [part for assignment in ASSIGNMENTS for part in ("--set", assignment)]
    command = [Path(sys.executable).with_name("snowball"), "run", "demo", *changes, "--out", folder, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rounds_done(folder: Path) -> int:
    file = folder / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def members(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = status.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(status.parent.name))
    return found


def test_killed_stopped_and_robbed_of_its_worker_a_run_ends_with_the_same_records(
    tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    killed = start(tmp_path, "--workers", "2")
    wait_until(lambda: rounds_done(tmp_path) >= 1)
    killed.kill()
    killed.communicate()
    wait_until(lambda: not members(killed.pid))  # its workers notice
    done = rounds_done(tmp_path)
    assert done < len(expected)

    stopped = start(tmp_path, "--workers", "2", "--resume")
    wait_until(lambda: rounds_done(tmp_path) > done)
    os.killpg(stopped.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, errors = stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode == 130, errors
    assert errors.startswith("stopped; resume with ")
    assert errors.count("\n") == 1
    wait_until(lambda: not members(stopped.pid))
    done = rounds_done(tmp_path)
    assert timeless(tmp_path) == expected[:done]

    robbed = start(tmp_path, "--workers", "1", "--resume")
    wait_until(lambda: rounds_done(tmp_path) > done)
    for pid in set(members(robbed.pid)) - {robbed.pid}:
        os.kill(pid, signal.SIGKILL)  # the worker, and what started it
    _, errors = robbed.communicate(timeout=PATIENCE)
    assert robbed.returncode == 0, errors
    assert "tried again in a fresh worker" in errors
    assert timeless(tmp_path) == expected


@pytest.mark.slow
def test_of_two_runs_in_a_folder_the_second_is_refused(tmp_path: Path, expected: list[dict[str, Any]]) -> None:
    first = start(tmp_path, "--engine", "serial")
    wait_until(lambda: rounds_done(tmp_path) >= 1)
    os.kill(first.pid, signal.SIGSTOP)  # so that it does not end while the second waits
    for option in ("--overwrite", "--resume"):
        second = start(tmp_path, "--engine", "serial", option)
        _, errors = second.communicate(timeout=PATIENCE)
        assert second.returncode == 2
        assert errors.startswith(f"snowball: another run (process {first.pid} on ")
        assert errors.count("\n") == 1
    os.kill(first.pid, signal.SIGCONT)
    _, errors = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, errors
    assert timeless(tmp_path) == expected
