"""Times a guard with FedAvg, from replies to the new model, beside plain weighted means of the same arrays.

    snowball bench guard --json > benchmarks/results/bench-guard.json

The plain mean is what a careful person writes: `total += weight * array` in float64, as precise as the guard's.
Flower's own loop does the same in float32, and is timed as well. All three take turns in one process on one thread;
seconds are processor time, the least of several turns, so that other programs on the machine count little. Memory is
what the process adds to the replies while each of them runs. The parts of a round are timed once more, one by one.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

import numpy as np

from benchmarks.inputs.synthetic import SEED
from benchmarks.measuring.machine import PeakMemory, describe_machine
from benchmarks.measuring.processes import run_module
from benchmarks.measuring.timing import Case, format_cases, make_case, use_one_thread
from snowball.defenses import FedAvg
from snowball.guard import Guard, Judgement, Reply
from snowball.guard.arguments import read_model
from snowball.guard.audit_log import hash_model
from snowball.guard.conversion import convert_replies
from snowball.guard.validation import validate_replies
from snowball.rng import numpy_stream
from snowball.updates import Layout

__all__ = ["format_cases", "run"]

SIZES = ((100, 1_000_000), (10, 10_000_000), (500, 1_000_000))
QUICK_DIVISOR = 20
"""A quick run's rows are this many times shorter."""

REPEATS = 10
Model = dict[str, np.ndarray[Any, np.dtype[Any]]]


def make_model(width: int) -> Model:
    """Make a model of two layers; the first has a tenth of the numbers."""
    rng = numpy_stream(SEED, "benchmark", "guard")
    return {
        name: rng.standard_normal(size, np.float32)
        for name, size in (("first", width // 10), ("last", width - width // 10))
    }


def make_replies(model: Model, clients: int) -> list[Reply]:
    """Make replies that each own their arrays: the model plus noise, which is shifted from client to client."""
    width = sum(map(len, model.values()))
    noise = 0.01 * numpy_stream(SEED, "benchmark", "noise").standard_normal(width + clients, np.float32)
    return [
        Reply(
            f"{number:04}",
            100 + number % 7,
            {name: own + noise[number : number + len(own)] for name, own in model.items()},
        )
        for number in range(clients)
    ]


def share_examples(replies: list[Reply]) -> list[float]:
    """Return each reply's share of all examples."""
    total = sum(reply.examples for reply in replies)
    return [reply.examples / total for reply in replies]


def average_carefully(model: Model, replies: list[Reply]) -> Model:
    """Average in float64."""
    totals = {name: np.zeros(own.shape) for name, own in model.items()}
    for reply, share in zip(replies, share_examples(replies), strict=True):
        for name, total in totals.items():
            total += share * reply.tensors[name].astype(np.float64)
    return {name: total.astype(model[name].dtype) for name, total in totals.items()}


def average_as_flower(model: Model, replies: list[Reply]) -> Model:
    """Average in the arrays' own type, one product and one sum per array, as Flower's FedAvg does."""
    totals: Model = {}
    for reply, share in zip(replies, share_examples(replies), strict=True):
        for name in model:
            product = reply.tensors[name] * share
            totals[name] = product if name not in totals else np.add(totals[name], product, out=totals[name])
    return totals


def average_guarded(model: Model, replies: list[Reply]) -> Judgement:
    """Average with a guard."""
    return Guard(FedAvg(), seed=0)(model, replies)


WAYS: dict[str, Callable[[Model, list[Reply]], Any]] = {
    "plain": average_carefully,
    "flower": average_as_flower,
    "guard": average_guarded,
}


def time_turns(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the least processor seconds of each work; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = process_time()
            work()
            seconds[name].append(process_time() - start)
    return {name: min(turns) for name, turns in seconds.items()}


def measure_memory(work: Callable[[], Any]) -> float | None:
    """Return the MiB by which the process grows while a work runs."""
    with PeakMemory() as memory:
        work()
    return memory.growth.get("RssAnon")


def time_parts(model: Model, replies: list[Reply], repeats: int) -> dict[str, float]:
    """Return the processor seconds of the main parts of a guarded round; the rest is mostly new rows."""
    base = read_model(model)
    layout = Layout.from_tensors(base)
    valid, _ = validate_replies(replies, base)
    updates = convert_replies(base, layout, valid)[1].to_updates(finite=True)
    works: dict[str, Callable[[], Any]] = {
        "validation": lambda: validate_replies(replies, base),
        "average": lambda: updates.mean(updates.examples),
        "hashes": lambda: [hash_model(base) for _ in range(2)],
    }
    return time_turns(works, repeats)


def time_guard(name: str, clients: int, width: int) -> Case:
    """Time one size; at least one run precedes the timed ones."""
    model = make_model(width)
    replies = make_replies(model, clients)
    works = {way: lambda average=average: average(model, replies) for way, average in WAYS.items()}
    memory = {f"{way}_mib": measure_memory(work) for way, work in works.items()}
    judged, plain = works["guard"](), works["plain"]()
    difference = max(float(np.abs(judged.tensors[name].numpy() - plain[name]).max()) for name in model)
    seconds = time_turns(works, REPEATS)
    parts = time_parts(model, replies, REPEATS)
    return make_case(
        name,
        seconds["guard"],
        seconds["plain"],
        width=width,
        flower_seconds=seconds["flower"],
        times_plain=seconds["guard"] / seconds["plain"],
        times_flower=seconds["guard"] / seconds["flower"],
        difference=difference,
        parts={**parts, "rest": max(0.0, seconds["guard"] - sum(parts.values()))},
        replies_mib=clients * width * 4 / 2**20,
        **memory,
    )


NAMES = {f"guard fedavg k{clients} d{width}": (clients, width) for clients, width in SIZES}


def run_alone(name: str, quick: bool) -> Case:
    """Run one case in a new process, whose memory no other case has used."""
    case: Case = json.loads(run_module("speed.guard", "--alone", name, *(["--quick"] if quick else [])))
    return case


def run(quick: bool = False) -> dict[str, Any]:
    """Run all cases on this machine; `quick` shortens the rows."""
    return {"machine": describe_machine(), "cases": [run_alone(name, quick) for name in NAMES]}


def main() -> None:
    """Print the table, or with --alone one case as JSON."""
    parser = argparse.ArgumentParser(description="Time a guard beside plain weighted means.")
    parser.add_argument("--quick", action="store_true", help="shorter rows")
    parser.add_argument("--alone", choices=NAMES, help="only this case, as JSON")
    options = parser.parse_args()
    if not options.alone:
        print(format_cases(run(options.quick)["cases"]))
        return
    clients, width = NAMES[options.alone]
    with use_one_thread():
        print(json.dumps(time_guard(options.alone, clients, width // QUICK_DIVISOR if options.quick else width)))


if __name__ == "__main__":
    main()
