"""Measures how time and memory grow with the clients per round, the parameters of a model and the rounds of a run.

    python -m benchmarks.speed.growth > benchmarks/results/growth.json

- clients: rounds of a simulated federation on the shipped sample, five samples per client, two workers, both elections;
- parameters: both elections and the mean of 20 rows in a file; the first and the last layer have a tenth of the columns
  each;
- rounds: a run of small rounds to disk, with time and memory over its course;
- writers: the paper's FEMNIST settings at a quarter of the width, one epoch: 3,597 synthetic writers, 100 of them per
  round.

Every point is measured in its own process, so that one series can be measured again if the machine was busy
(`--only clients > growth.json`). The exponent of a series is the slope between its last two points, in logarithms.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch

from benchmarks.files import read_result
from benchmarks.measuring.machine import PeakMemory, describe_machine, measure_family_memory
from benchmarks.measuring.processes import run_module
from benchmarks.measuring.timing import Case, time_fastest, use_one_thread
from benchmarks.speed.elections import elect, write_rows
from benchmarks.speed.loading import draw_owners
from snowball.data.sets.femnist import COMPLETE_SIZE
from snowball.layout import Layout
from snowball.rng import numpy_stream
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.experiment import Experiment
from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment
from snowball.updates import Updates

WORKERS = 2
ROWS = 20
SAMPLES = 5
SMALL = [
    "training.epochs=1",
    "model.name=cnn-quarter",
    "defense.name=snowball",
    "defense.clusters=11",
    "defense.grow_after=0",
]


def measure_clients(size: int) -> Iterator[Case]:
    """Measure a round of `size` clients, the faster of two after the first."""
    sizes = [f"data.clients={size}", f"cohort={size}", f"data.examples={SAMPLES * size}", "rounds=3"]
    records = list(time_rounds(load_experiment("demo", [*SMALL, *sizes, "data.partition=iid"])))
    for part in ("train", "defense"):
        yield {"name": f"clients {size} {part}", "size": size, "seconds": min(each[part] for each, _ in records[1:])}
    yield {"name": f"clients {size} memory", "size": size, "mib": max(memory for _, memory in records)}


def measure_parameters(size: int) -> Iterator[Case]:
    """Measure both elections and the mean, on rows of this length."""
    end = size // 10
    layout = Layout(("first.weight", "middle.weight", "last.weight"), ((end, 1), (size - 2 * end, 1), (end, 1)))
    names = tuple(f"{row:02d}" for row in range(ROWS))
    with TemporaryDirectory() as folder, use_one_thread():
        path = Path(folder) / "rows"
        write_rows(path, ROWS, size)
        rows = torch.from_file(str(path), size=ROWS * size, dtype=torch.float32).view(ROWS, size)
        with PeakMemory() as memory:
            make = partial(Updates, rows, torch.ones(ROWS, dtype=torch.float64), names, layout)
            seconds, _ = time_fastest(elect, make, 1 if size > 10**7 else 3)
    yield {"name": f"parameters {size}", "size": size, "seconds": seconds, "mib": memory.growth.get("RssAnon")}


def measure_rounds(size: int) -> Iterator[Case]:
    """Measure a run of `size` rounds: the time and memory of each tenth."""
    few = ["data.clients=10", "cohort=6", "data.examples=100", f"rounds={size}", "defense.clusters=3"]
    records = list(
        time_rounds(load_experiment("demo", [*SMALL[:3], *few, "defense.grow_after=0", "data.partition=iid"]))
    )
    tenth = size // 10
    for end in range(tenth, size + 1, tenth):
        part = records[end - tenth : end]
        seconds = sorted(each["whole"] for each, _ in part)[tenth // 2]
        yield {"name": f"rounds {end}", "size": end, "seconds": seconds, "mib": part[-1][1]}


def measure_writers(size: int) -> Iterator[Case]:
    """Measure `size` rounds of FEMNIST's size."""
    with TemporaryDirectory() as folder:
        os.environ |= {"SNOWBALL_DATA": folder, "XDG_CACHE_HOME": folder}
        make_writers(Path(folder) / "femnist.npz")
        settings = ["model.name=cnn-quarter", "training.epochs=1", "defense.judge=distance", f"rounds={size}"]
        for number, (each, memory) in enumerate(time_rounds(load_experiment("paper/femnist", settings)), 1):
            yield {"name": f"writers, round {number}", "size": number, "seconds": each["whole"], "mib": memory}


def make_writers(path: Path) -> None:
    """Write a file in the format of the complete FEMNIST, filled with noise."""
    count, images = COMPLETE_SIZE
    rng = numpy_stream(0, "growth")
    pixels = rng.integers(0, 256, (images, 28, 28), np.uint8)
    names = np.array([f"f{number:04d}" for number in range(count)])
    np.savez(path, x=pixels, y=rng.integers(0, 62, images), writer=draw_owners(count, images).numpy(), writer_ids=names)


def time_rounds(experiment: Experiment) -> Iterator[tuple[dict[str, float], float]]:
    """Yield the seconds of each round of a run, including all it writes, and the MiB that it and its workers hold."""
    with TemporaryDirectory() as folder:
        start = perf_counter()
        for record in run_experiment(experiment, Path(folder) / "run", partial(ProcessEngine, workers=WORKERS)):
            yield {**record["seconds"], "whole": perf_counter() - start}, measure_family_memory()
            start = perf_counter()


SERIES: dict[str, tuple[Callable[[int], Iterator[Case]], tuple[int, ...]]] = {
    "clients": (measure_clients, (50, 100, 200, 500, 1000)),
    "parameters": (measure_parameters, (10**5, 10**6, 10**7, 10**8)),
    "rounds": (measure_rounds, (500,)),
    "writers": (measure_writers, (12,)),
}


def run_alone(series: str, size: int) -> list[Case]:
    """Measure one point in a new process."""
    print(f"{series} {size}", file=sys.stderr, flush=True)
    cases: list[Case] = json.loads(run_module("speed.growth", "--alone", series, str(size)))
    return cases


def measure_series(series: str, kept: list[Case], only: str | None) -> list[Case]:
    """Measure the points of a series, or return its kept points if only another series is measured."""
    if only not in (None, series):
        return [case for case in kept if case["name"].startswith(series)]
    return [case for size in SERIES[series][1] for case in run_alone(series, size)]


def fit_exponents(cases: list[Case]) -> dict[str, float]:
    """Return the slope between the last two points of each series of times."""
    lines: dict[str, list[Case]] = {}
    for case in cases:
        if "seconds" in case and case["name"].startswith(("clients", "parameters")):
            lines.setdefault(case["name"].replace(f" {case['size']}", ""), []).append(case)
    return {
        name: log(points[-1]["seconds"] / points[-2]["seconds"]) / log(points[-1]["size"] / points[-2]["size"])
        for name, points in lines.items()
    }


def main() -> None:
    """Print every series as JSON."""
    parser = argparse.ArgumentParser(description="Measure how time and memory grow.")
    parser.add_argument("--alone", nargs=2, metavar=("SERIES", "SIZE"), help="only this point")
    parser.add_argument("--only", choices=SERIES, help="measure this series anew and take the others from the results")
    options = parser.parse_args()
    if options.alone:
        series, size = options.alone
        print(json.dumps(list(SERIES[series][0](int(size)))))
        return
    kept: list[Case] = read_result("growth")["cases"] if options.only else []
    cases = [case for series in SERIES for case in measure_series(series, kept, options.only)]
    print(json.dumps({"machine": describe_machine(), "exponents": fit_exponents(cases), "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
