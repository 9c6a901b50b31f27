"""Makes the runs of a benchmark, each in its own folder, where it resumes if it was stopped."""

import json
import sys
from collections.abc import Iterable, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.measuring.machine import describe_machine
from snowball.records.run import RunFolder
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.presets import load_experiment
from snowball.sim.run import is_finished, run_experiment


class Case(NamedTuple):
    """One run: a preset, the changes to it, and its name in the results."""

    preset: str
    assignments: tuple[str, ...]
    labels: dict[str, str | None]


def run_case(case: Case, root: Path) -> dict[str, Any]:
    """Run one case, unless its folder holds it already, and return its results."""
    torch.set_num_threads(1)
    experiment = load_experiment(case.preset, case.assignments)
    path = root / "-".join(filter(None, case.labels.values()))
    if not is_finished(path, experiment):
        for _ in run_experiment(experiment, path, SerialEngine, resume=True):
            pass
    folder = RunFolder.open(path)
    seconds = sorted(record["seconds"]["defense"] for record in folder.read_rounds())
    summary = folder.read_summary()
    measured = {**(summary.plain() if summary else {}), "defense_seconds": seconds[len(seconds) // 2]}
    return {**case.labels, "settings": experiment.defense.own, **measured}


def run_cases(cases: Iterable[Case], root: Path, others: Iterable[Mapping[str, Any]] = ()) -> None:
    """Run all cases, two at a time; print each as it ends, and finally all as JSON, after the results of others."""
    collected = list(others)
    with get_context("forkserver").Pool(2) as pool:
        waiting = [pool.apply_async(run_case, (case, root)) for case in cases]
        for result in waiting:
            collected.append(result.get())
            print(json.dumps(collected[-1], default=vars), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe_machine(), "runs": collected}, indent=1, default=vars))
