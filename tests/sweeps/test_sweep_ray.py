"""Sweeps on a real Ray cluster on this machine."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from tiny_grids import IMPOSSIBLE, REFUSED, block

from snowball.records.run import RunFolder
from snowball.sim.run import is_finished, run_experiment
from snowball.sweeps.grid import read_grid

pytest.importorskip("ray", reason="ray is not installed: `make test-flower` has an environment for it")

TIMEOUT_SECONDS = 300.0


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two runs and, before them, one that is refused."""
    file = tmp_path / "tiny.toml"
    file.write_text(block(IMPOSSIBLE) + block(), encoding="utf-8")
    return file


def begin(grid: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [Path(sys.executable).with_name("snowball"), "sweep", grid, "--out", out, "--engine", "ray", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, output, errors


def timeless(path: Path) -> list[dict[str, Any]]:
    return [{**record, "seconds": None} for record in RunFolder.open(path).read_rounds()]


def members(session: int) -> list[str]:
    """The living processes of a session, by name."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = status.read_text(encoding="utf-8").rpartition(")")
        except OSError:
            continue
        state, _, _, its_session = fields.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name.partition("(")[2])
    return found


@pytest.mark.slow
def test_runs_come_back_as_they_are_played_here(grid: Path, tmp_path: Path) -> None:
    out, runs = tmp_path / "out", read_grid(grid).runs
    code, output, errors = finish(begin(grid, out, "--jobs", "2"))
    assert (code, errors) == (1, "")
    assert json.loads((out / "failed.json").read_text(encoding="utf-8")) == {runs[0].name: REFUSED}
    assert f"{runs[0].name} failed: {REFUSED}\n" in output
    for planned in runs[1:]:
        list(run_experiment(planned.experiment, tmp_path / "here" / planned.name))
        assert is_finished(out / planned.name, planned.experiment)
        assert timeless(out / planned.name) == timeless(tmp_path / "here" / planned.name)
        assert {file.name for file in (out / planned.name).iterdir()} == {"run.json", "rounds.jsonl", "summary.json"}


@pytest.mark.slow
def test_stopped_it_says_how_it_goes_on_and_leaves_nobody_behind(grid: Path, tmp_path: Path) -> None:
    grid.write_text(grid.read_text(encoding="utf-8").replace("rounds = 2", "rounds = 2000"), encoding="utf-8")
    process = begin(grid, tmp_path / "out", "--jobs", "2")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (tmp_path / "out" / "failed.json").exists():  # the first run ended, the second is played
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    code, _, errors = finish(process)
    assert code == 143
    assert errors == f"stopped; run the same command to continue; the runs so far are in {tmp_path / 'out'}\n"
    while members(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_address_where_no_cluster_answers_is_refused(grid: Path, tmp_path: Path) -> None:
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        code, _, errors = finish(begin(grid, tmp_path / "out", "--address", address))
    assert code == 2
    assert errors.startswith(f"snowball: --address '{address}' is not a Ray cluster: ")
    assert errors.count("\n") == 1
