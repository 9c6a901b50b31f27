"""Runs one after the other in this process."""

from pathlib import Path
from typing import Any

from tiny_grids import FINE, IMPOSSIBLE, REFUSED, block

from snowball.sim.engines.serial import SerialEngine
from snowball.sweeps.executors.serial import SerialExecutor
from snowball.sweeps.grid import read_grid
from snowball.sweeps.sweep import prepare_sweep, run_sweep


def list_ends(grid: Any, folder: Path, retry: bool = False) -> dict[str, str]:
    """Run a grid and return why each run failed, by defense; empty if it did not."""
    plan = prepare_sweep(grid, folder, retry)
    events = list(run_sweep(plan, folder, SerialExecutor(SerialEngine)))
    return {event.run.experiment.defense.name: event.fault for event in events if event.ended}


def test_runs_end_one_by_one_and_a_failure_stops_none(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(block(IMPOSSIBLE) + block(FINE), encoding="utf-8")
    grid = read_grid(file)
    assert list_ends(grid, tmp_path / "runs") == {"snowball": REFUSED, "fedavg": "", "krum": ""}
    assert list_ends(grid, tmp_path / "runs") == {}
    assert list_ends(grid, tmp_path / "runs", retry=True) == {"snowball": REFUSED}


def test_a_run_that_was_stopped_continues_after_its_last_round(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(block(rounds=3), encoding="utf-8")
    grid = read_grid(file)
    events = run_sweep(prepare_sweep(grid, tmp_path / "runs"), tmp_path / "runs", SerialExecutor(SerialEngine))
    assert next(events).round == 1
    events.close()
    rounds = [
        event.round
        for event in run_sweep(prepare_sweep(grid, tmp_path / "runs"), tmp_path / "runs", SerialExecutor(SerialEngine))
    ]
    assert rounds == [2, 3, 3, 1, 2, 3, 3]  # the last event of a run says that it ended
