"""The runs of a benchmark: each in a folder of its own, where it goes on if it was stopped."""

import json
import sys
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from machine import describe
from snowball.records import RunFolder
from snowball.sim.engine import Serial
from snowball.sim.experiment import load
from snowball.sim.processes import Processes
from snowball.sim.run import is_finished, run


class Case(NamedTuple):
    """One run: a preset, what is changed in it, and what the results call it."""

    preset: str
    assignments: tuple[str, ...]
    labels: dict[str, str | None]


def play(case: Case, root: Path, workers: int = 1) -> dict[str, Any]:
    """Run one case, unless its folder holds it already: what it amounts to."""
    torch.set_num_threads(1)
    experiment = load(case.preset, case.assignments)
    path = root / "-".join(filter(None, case.labels.values()))
    if not is_finished(path, experiment):
        engine = partial(Processes, workers=workers) if workers > 1 else Serial
        for _ in run(experiment, path, engine, resume=True):
            pass
    folder = RunFolder.open(path)
    seconds = sorted(record["seconds"]["defense"] for record in folder.rounds())
    measured = {**(folder.summary() or {}), "defense_seconds": seconds[len(seconds) // 2]}
    return {**case.labels, "settings": experiment.defense.own, **measured}


def side_by_side(cases: Iterable[Case], root: Path) -> None:
    """Run all cases, two at a time, and print what they amount to."""
    with get_context("forkserver").Pool(2) as pool:
        waiting = [pool.apply_async(play, (case, root)) for case in cases]
        publish(result.get() for result in waiting)


def one_by_one(cases: Iterable[Case], root: Path) -> None:
    """Run all cases, each on two cores, and print what they amount to: for where the time of a run matters."""
    publish(play(case, root, workers=2) for case in cases)


def publish(results: Iterable[dict[str, Any]]) -> None:
    """Print results as JSON, and each as it comes."""
    collected = []
    for result in results:
        collected.append(result)
        print(json.dumps(result, default=vars), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe(), "runs": collected}, indent=1, default=vars))
