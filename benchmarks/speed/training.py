"""Times the training of clients and whole rounds, beside a plain loop (baselines/plain.py) and the machine's peak.

All engines train the same clients on the same samples in the same number of steps. They take turns, and the fastest of
several turns counts; between turns the machine's peak is measured. Each network runs in its own process.

    python -m benchmarks.speed.training [--quick] [--device cuda]
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple, Self

import torch

from benchmarks.baselines import plain
from benchmarks.inputs.workloads import QUICK, WORKLOADS, Workload, make_samples, write_samples
from benchmarks.measuring.machine import PeakMemory, describe_machine, measure_family_memory
from benchmarks.measuring.operations import PEAK_SECONDS, count_step_operations, measure_peak, wait_for_device
from benchmarks.measuring.processes import run_module
from benchmarks.measuring.timing import Case, format_cases, make_case
from snowball.errors import SettingError
from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import pack_message, train_cohort
from snowball.sim.engines.processes import ProcessEngine, count_cores
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.worker import MEMBER, TASK_HEADER
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state

TURNS = 3
QUICK_PEAK = PEAK_SECONDS / 10
MEMORY_SECONDS = 0.05
"""Seconds between two readings of the memory."""

CPU, CUDA = "cpu", "cuda"


# Contenders


class Plainly:
    """The plain loop, as an engine."""

    def __init__(self, federation: Federation, threads: int = 1, device: str = CPU) -> None:
        settings = federation.experiment.training
        self.threads = threads
        self.layout = federation.layout
        self.model = plain.use_plain_forward(federation.build_model()).to(device)
        rates = (settings.compute_rate(1), settings.momentum, settings.weight_decay)
        self.recipe = plain.Recipe(settings.epochs, settings.batch, *rates)
        held = map(federation.select_samples, range(federation.experiment.data.clients))
        self.samples = [make_samples(federation, split, device) for split in held]

    def __enter__(self) -> Self:
        self.before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        return self

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self.before)

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> list[plain.Weights]:
        """Train a cohort from the state's global model."""
        weights = dict(self.layout.split(state.base))
        return plain.train_cohort(self.model, weights, [self.samples[client] for client in cohort], self.recipe)


class PlainProcesses:
    """Plain loops in parallel, one per worker, each with its share of the cohort."""

    def __init__(self, federation: Federation, workers: int) -> None:
        self.plainly = Plainly(federation)
        self.workers = workers

    def __enter__(self) -> Self:
        self.plainly.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.plainly.__exit__()

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> None:
        """Train a cohort from the state's global model, and keep nothing: only the time counts."""
        shares = [cohort[worker :: self.workers] for worker in range(self.workers)]
        processes = [
            get_context("fork").Process(target=self.plainly.train, args=(state, share, round)) for share in shares
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise RuntimeError("a plain loop in a process of its own failed")


class Contender(NamedTuple):
    """A way to train a cohort.

    Attributes:
        make: makes the engine for a federation.
        workers: number of processes or threads that train in parallel.
        train: trains a cohort with the engine.
        moved: bytes moved between processes, given the clients, the columns and the bytes of the settings.
    """

    make: Callable[[Federation], Any]
    workers: int = 1
    train: Callable[[Any, RunState, Sequence[int], int], Any] = train_cohort
    moved: Callable[[int, int, int], int] = lambda clients, width, settings: 0


PLAIN = "plain"


def list_contenders(device: str) -> dict[str, Contender]:
    """Return everything that can train here, by name; other projects' engines only if they are installed."""
    found = {
        PLAIN: Contender(partial(Plainly, device=device), train=Plainly.train),
        "serial": Contender(partial(SerialEngine, device=device)),
        **({"vmap": Contender(partial(make_vmap, device=device))} if find_spec("snowball.sim.engines.vmap") else {}),
    }
    if device != CPU:
        return found
    if find_spec("pfl"):
        found["pfl"] = Contender(make_pfl, train=lambda engine, *task: engine.train(*task))
    if count_cores() > 1:
        found[f"plain {count_cores()} threads"] = Contender(
            partial(Plainly, threads=count_cores()), count_cores(), Plainly.train
        )
        found[f"plain {count_cores()} processes"] = Contender(
            partial(PlainProcesses, workers=count_cores()), count_cores(), PlainProcesses.train
        )
    for workers in sorted({1, count_cores()}):
        found[f"processes {workers}"] = Contender(
            partial(ProcessEngine, workers=workers), workers, moved=count_bytes_of_processes
        )
    if find_spec("flwr"):
        found[f"flower {count_cores()}"] = Contender(
            partial(make_flower, workers=count_cores()), count_cores(), moved=count_bytes_of_flower
        )
    return found


def make_vmap(federation: Federation, device: str) -> Any:
    """Make an engine that trains clients as one batch of models."""
    from snowball.sim.engines.vmap import VmapEngine

    return VmapEngine(federation, device)


def make_pfl(federation: Federation) -> Any:
    """Make an engine on Apple's simulation."""
    from benchmarks.baselines.pfl_engine import Pfl

    return Pfl(federation)


def make_flower(federation: Federation, workers: int) -> Any:
    """Make an engine that runs our training in Flower's simulation."""
    from snowball.sim.engines.flower import FlowerEngine

    return FlowerEngine(federation, workers)


def count_bytes_of_processes(clients: int, width: int, settings: int) -> int:
    """Count the global row once, one row per client, and a task and an answer per client."""
    task = TASK_HEADER.size + MEMBER.size  # of one client; groups have one header
    return 4 * width * (1 + clients) + clients * (task + 2 * len(pack_message(None, {})))


def count_bytes_of_flower(clients: int, width: int, settings: int) -> int:
    """Count the global row and the settings in every message, and a row in every reply."""
    return clients * (2 * 4 * width + settings)


# One network


def time_network(name: str, quick: bool, device: str) -> tuple[list[Case], float]:
    """Time every contender on one network, and return the peak measured between them."""
    workload = (QUICK if quick else WORKLOADS)[name]
    federation = Federation.build(workload.experiment)
    state = build_first_state(federation)
    taking_part = list_contenders(device)
    best: dict[str, float] = {}
    memory: dict[str, float | None] = {}
    possible: dict[str, list[float]] = {}  # operations that the peak beside a turn allowed in its time
    rates = []
    for turn in range(1 if quick else TURNS):
        for contender, way in taking_part.items():
            rates.append(measure_peak(device, QUICK_PEAK if quick else PEAK_SECONDS))
            seconds, held = time_turn(way, federation, state, device, watch=turn == 0)
            best[contender] = min(seconds, best.get(contender, seconds))
            possible.setdefault(contender, []).append(rates[-1] * seconds * way.workers)
            memory.setdefault(contender, held)
    facts = partial(derive_facts, workload, federation, best, taking_part)
    done = workload.seen * count_sample_operations(workload, federation)
    cases = []
    for contender, seconds in best.items():
        beside = {"share_of_peak_beside": done / median(possible[contender]), "peak_mib": memory[contender]}
        cases.append(make_case(f"{name} {contender}", seconds, best[PLAIN], **facts(contender), **beside))
    return cases, max(rates)


def time_turn(
    way: Contender, federation: Federation, state: RunState, device: str, watch: bool
) -> tuple[float, float | None]:
    """Return the seconds of a cohort's training after a warm-up, and, if watched, the peak MiB of the warm-up."""
    cohort = range(federation.experiment.cohort)
    memory = PeakMemory(lambda: {"family": measure_family_memory()}, MEMORY_SECONDS)
    with way.make(federation) as engine:
        with memory if watch else nullcontext():
            way.train(engine, state, cohort, 1)
        wait_for_device(device)
        start = perf_counter()
        way.train(engine, state, cohort, 1)
        wait_for_device(device)
        return perf_counter() - start, memory.peak["family"] or None if watch else None


def derive_facts(
    workload: Workload, federation: Federation, best: dict[str, float], taking_part: dict[str, Contender], name: str
) -> dict[str, Any]:
    """Derive rates, efficiency and bytes from a contender's time."""
    seconds, workers = best[name], taking_part[name].workers
    settings = len(json.dumps(federation.experiment.dump_settings()))
    alone = best.get(name.removesuffix(f" {workers}") + " 1")
    return {
        "workers": workers,
        "samples_per_second": workload.seen / seconds,
        "gflops": workload.seen * count_sample_operations(workload, federation) / seconds / 1e9,
        "ratio_per_core": best[PLAIN] / seconds / workers,
        "parallel_efficiency": alone / seconds / workers if alone else None,
        "bytes_moved": taking_part[name].moved(workload.clients, federation.layout.width, settings),
    }


def count_sample_operations(workload: Workload, federation: Federation) -> float:
    """Return the floating-point operations of training per sample, in batches of the workload's size."""
    inputs = federation.dataset.normalise(federation.dataset.train.inputs[: workload.batch])
    return count_step_operations(plain.use_plain_forward(federation.build_model()), inputs) / workload.batch


# All networks


def time_training(quick: bool, device: str) -> list[Case]:
    """Time every network, each in a process with synthetic samples in its own cache; the peak is the one over all."""
    with TemporaryDirectory() as cache:
        write_samples(Path(cache) / "snowball")
        measured = [run_network(name, quick, device, cache) for name in WORKLOADS]
    highest = max(rate for _, rate in measured) / 1e9
    cases = [case for some, _ in measured for case in some]
    for case in cases:
        case["share_of_peak"] = case["gflops"] / case["workers"] / highest
    return [make_case("peak sgemm", 1 / highest, None, gflops=highest), *cases]


def run_network(name: str, quick: bool, device: str, cache: str) -> tuple[list[Case], float]:
    """Return a network's cases from a new process: worker processes look for data where it does."""
    arguments = ["--network", name, "--device", device, *(["--quick"] if quick else [])]
    hidden = {"SNOWBALL_DATA", "SNOWBALL_VECTORS"}  # use the same samples wherever this runs
    environment = {key: value for key, value in os.environ.items() if key not in hidden} | {"XDG_CACHE_HOME": cache}
    printed = run_module("speed.training", *arguments, environment=environment)
    cases, rate = json.loads(printed.splitlines()[-1])  # libraries may print before
    return cases, rate


def run(quick: bool = False, device: str = CPU) -> dict[str, Any]:
    """Run all cases on this machine; `quick` cuts clients, samples, turns and, on both sides, the VAE's epochs."""
    if device == CUDA and not torch.cuda.is_available():
        raise SettingError(f"--device cuda needs a GPU, and torch {torch.__version__} finds none")
    cases = time_training(quick, device)
    if device == CPU:
        from benchmarks.speed import whole_round  # imports scikit-learn, which training does not need

        cases += whole_round.run_cases(quick)
    gpu = {"gpu": torch.cuda.get_device_name()} if device == CUDA else {}
    return {"machine": {**describe_machine(), **gpu}, "cases": cases}


def main() -> None:
    """Print the table, or with --network one network's cases and the peak as JSON."""
    parser = argparse.ArgumentParser(description="Time training beside the plain loop.")
    parser.add_argument("--quick", action="store_true", help="fewer clients, samples and epochs")
    parser.add_argument("--device", choices=(CPU, CUDA), default=CPU)
    parser.add_argument("--network", choices=WORKLOADS, help="only this one, as JSON")
    options = parser.parse_args()
    if options.network:
        print("\n" + json.dumps(time_network(options.network, options.quick, options.device)))
    else:
        print(format_cases(run(options.quick, options.device)["cases"]))


__all__ = ["format_cases", "run"]

if __name__ == "__main__":
    main()
