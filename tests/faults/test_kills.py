"""Runs that are killed again and again end with the records of a run that nobody killed."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from small_run import read_results, start_run, wait_for_end

KILLED = -9


def kill_at_steps(path: Path, rng: random.Random, times: int) -> None:
    """Kill a run at drawn steps on the disk; few enough for it not to end meanwhile."""
    for _ in range(times):
        assert wait_for_end(start_run(path, rng.randint(1, 12))) == KILLED


def finish(path: Path) -> Any:
    assert wait_for_end(start_run(path)) == 0
    assert not list(path.rglob(".snowball-*")), "drafts are left behind"
    return read_results(path)


def test_a_run_that_is_killed_five_times_ends_with_the_same_records(tmp_path: Path, expected: Any) -> None:
    assert {"dropped"} < set().union(*expected[0])
    kill_at_steps(tmp_path / "run", random.Random(1), 5)
    assert finish(tmp_path / "run") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_run_that_is_killed_fifty_times_ends_with_the_same_records(tmp_path: Path, expected: Any, seed: int) -> None:
    kill_at_steps(tmp_path / "run", random.Random(seed), 5)
    assert finish(tmp_path / "run") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_killed_at_any_time_ends_with_the_same_records(tmp_path: Path, expected: Any, seed: int) -> None:
    rng, kills = random.Random(seed), 0
    while kills < 5:
        process = start_run(tmp_path / "run")
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        kills += wait_for_end(process) == KILLED
        if (tmp_path / "run" / "summary.json").exists():
            break
    assert kills
    assert finish(tmp_path / "run") == expected
