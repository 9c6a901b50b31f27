"""The simulator's clients, trained over Flower."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snowball.sim.engines.serial import SerialEngine
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.presets import load_experiment

pytest.importorskip("flwr", reason="flwr is not installed: make test-flower has an environment for it")

SMALL = ["rounds=2", "data.clients=10", "cohort=6", "data.examples=300", "training.epochs=1", "defense.clusters=3"]
KILLED = 137


@pytest.fixture
def federation() -> Federation:
    return Federation.build(load_experiment("demo", ["defense.name=snowball", *SMALL]))


def snowball(out: Path, engine: str, *options: str, killed_after: int | None = None) -> int:
    """Run the command line in a process; if it is killed as a round begins, it leaves what a crash leaves."""
    crash = f"""
import os
from snowball.sim.engines import flower
train = flower.FlowerEngine.train
def crash(self, state, cohort, round):
    return os._exit({KILLED}) if round > {killed_after} else train(self, state, cohort, round)
flower.FlowerEngine.train = crash
"""
    program = (crash if killed_after is not None else "") + "from snowball.cli import main; main()"
    settings = [part for setting in ["defense.name=snowball", *SMALL] for part in ("--set", setting)]
    command = [sys.executable, "-c", program, "run", "demo", *settings, "--engine", engine, "--out", str(out), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=out.parent, timeout=300, capture_output=True, text=True)
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode


def records(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_records_are_the_same_as_in_one_process(federation: Federation) -> None:
    from snowball.sim.engines.flower import FlowerEngine

    runs = [list(simulate(federation, engine)) for engine in (SerialEngine, partial(FlowerEngine, workers=2))]
    for record in (record for run in runs for record in run):
        del record["seconds"]
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_the_command_writes_the_same_records_even_where_it_was_killed_half_way(tmp_path: Path) -> None:
    assert snowball(tmp_path / "serial", "serial") == 0
    out = tmp_path / "flower"
    assert snowball(out, "flower", "--workers", "2", killed_after=1) == KILLED
    assert records(out) == records(tmp_path / "serial")[:1]
    assert snowball(out, "flower", "--workers", "2", "--resume") == 0
    assert records(out) == records(tmp_path / "serial")
