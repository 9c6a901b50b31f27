"""Hundreds of rounds with all faults at once: memory, open files, threads, processes and files on disk do not grow."""

import gc
import logging
import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import snowball
from snowball.defenses import DEFENSES
from snowball.guard import Guard, Reply
from snowball.sim.engines import pool
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.run import run_experiment
from tests.test_hostile_rounds import BASE, LAYOUT, MODEL, make_hostile_rows

SOAKED = ("median", "trimmed-mean", "krum", "rfa", "snowball", "snowball-plus")
"""Defenses that survive corrupted replies, so that no model is ruined on the way."""

ROUNDS = 120

MAX_GROWTH_BYTES = 16 << 20
"""More than the allocator needs to settle, and less than a hundred rounds lose if each keeps a copy of its replies."""

SETTINGS = {
    "rounds": ROUNDS,
    "cohort": 10,
    "timeout": 1.0,
    "data.clients": 12,
    "data.minimum": 5,
    "attack.trigger": "features",
    "training.epochs": 1,
    "faults.dropped": 0.1,
    "faults.slow": 0.002,
    "faults.duplicated": 0.1,
    "faults.corrupted": 0.05,
    "faults.killed": 0.02,
}

LABELS = np.arange(240) % 3
FEATURES = np.random.default_rng(0).normal(size=(240, 400)).astype(np.float32) + 2 * np.eye(3, 400)[LABELS]


@dataclass(frozen=True)
class Usage:
    """What this process and its children hold."""

    memory: int
    open_files: int
    threads: int
    children: int
    files: int


def measure_usage(folder: Path) -> Usage:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Usage(
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
        open_files=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        children=count_descendants(os.getpid()),
        files=len(list(folder.rglob("*"))),
    )


def count_descendants(process: int) -> int:
    """Return how many processes a process has started, and those have started, that are still there."""
    children: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return len(children) + sum(map(count_descendants, children))


def check_growth(early: Usage, late: Usage) -> None:
    """Check that nothing grows; `pytest -rP` shows what was measured."""
    print(early, late, sep="\n")  # noqa: T201
    assert late.memory - early.memory < MAX_GROWTH_BYTES
    assert late.open_files <= early.open_files
    assert late.threads <= early.threads
    assert late.children <= early.children
    assert late.files <= early.files


@pytest.mark.slow
@pytest.mark.parametrize("defense", SOAKED)
def test_a_hundred_rounds_with_all_faults_hold_nothing(
    defense: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LIMIT_FACTOR", 5)  # for the sake of time; who is healthy succeeds in the second try
    own = {"data": (FEATURES, LABELS), "model": nn.Linear(400, 3)}
    experiment = snowball.load_experiment("demo", SETTINGS | {"defense.name": defense}, **own)
    usages, reasons = [], set[str]()
    for record in run_experiment(experiment, tmp_path, partial(ProcessEngine, workers=2)):
        reasons |= set(record.get("dropped", {}).values())
        if record["round"] in (ROUNDS // 3, ROUNDS):
            usages.append(measure_usage(tmp_path))
    assert reasons == {"error", "not-finite"}
    check_growth(*usages)


@pytest.mark.slow
@pytest.mark.parametrize("defense", SOAKED)
def test_hundreds_of_hostile_rounds_in_a_guard_hold_nothing(
    defense: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "snowball")  # the test's own list of warnings would grow
    files = {"audit": tmp_path / "audit.jsonl", "models": tmp_path / "models"}
    guard = Guard(DEFENSES[defense](), **files, keep_models=3, seed=1)  # type: ignore[arg-type]
    usages = []
    for seed in range(1, 301):
        rows, examples = make_hostile_rows(seed)
        replies = [
            Reply(f"c{seed % 7}-{number}", count, LAYOUT.split(BASE + row))
            for number, (row, count) in enumerate(zip(rows, examples.tolist(), strict=True))
        ]
        guard(MODEL, replies + replies[:1])
        guard.save(tmp_path / "guard.state")
        if seed in (150, 300):
            usages.append(measure_usage(tmp_path))
    check_growth(*usages)
