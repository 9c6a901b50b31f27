"""Times a guard, from replies to the new model, beside plain work on the same arrays.

    snowball bench guard --json > benchmarks/results/bench-guard.json

The plain mean is what a careful person writes: `total += weight * array` in float64, as precise as the guard's.
Flower's own loop does the same in float32, and is timed as well. Defenses that elect are timed beside the plain mean
and one float32 Gram matrix of the same rows. All ways take turns in one process on
one thread; seconds are processor time, the least of several turns, so that other programs on the machine count little.
Memory is what the process adds to the replies while each of them runs. The parts of a round are timed once more, one by
one.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.inputs.synthetic import SEED
from benchmarks.measuring.machine import PeakMemory, describe_machine
from benchmarks.measuring.processes import run_module
from benchmarks.measuring.timing import Case, format_cases, make_case, time_turns, use_one_thread
from snowball.defenses import Context, Defense, FedAvg, Snowball, SnowballPlus
from snowball.guard import Guard, Judgement, Reply
from snowball.guard.arguments import read_model
from snowball.guard.audit_log import hash_model
from snowball.guard.conversion import convert_replies
from snowball.guard.validation import validate_replies
from snowball.layout import Layout
from snowball.rng import numpy_stream

__all__ = ["format_cases", "run"]

SIZES = ((100, 1_000_000), (10, 10_000_000), (500, 1_000_000), (10, 50_000_000))
ELECTION_SIZES = SIZES[2:]
MAX_CLUSTERS = 11
ELECTING: dict[str, Callable[[int], Defense]] = {
    "snowball": lambda clients: Snowball(clusters=min(MAX_CLUSTERS, clients // 2), grow_after=1),
    "snowball-grown": lambda clients: Snowball(clusters=min(MAX_CLUSTERS, clients // 2), grow_after=0),
    "snowball-plus": lambda clients: SnowballPlus(),
}
"""Makes a defense for a number of clients: Snowball for a round that holds only its bottom-up election, or both."""

CASES = {
    f"guard {defense} k{clients} d{width}": (defense, clients, width)
    for defense, sizes in {"fedavg": SIZES, **dict.fromkeys(ELECTING, ELECTION_SIZES)}.items()
    for clients, width in sizes
}
QUICK_DIVISOR = 20
"""A quick run's rows are this many times shorter."""

REPEATS, LONG_REPEATS = 10, 2
"""Turns of each way, and of those that take seconds."""

LONG = 50_000_000
"""Columns whose averages take seconds."""

Model = dict[str, np.ndarray[Any, np.dtype[Any]]]


def make_model(width: int) -> Model:
    """Make a model of two layers, in multiples of 1,000 numbers; the first has a tenth of them."""
    rng = numpy_stream(SEED, "benchmark", "guard")
    shapes = {"first": (100, width // 1000), "last": (10, width // 1000 * 90)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def make_replies(model: Model, clients: int) -> list[Reply]:
    """Make replies that each own their arrays: the model plus noise, which is shifted from client to client."""
    width = sum(own.size for own in model.values())
    noise = 0.01 * numpy_stream(SEED, "benchmark", "noise").standard_normal(width + clients, np.float32)
    return [
        Reply(
            f"{number:04}",
            100 + number % 7,
            {name: own + noise[number : number + own.size].reshape(own.shape) for name, own in model.items()},
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


def elect_guarded(defense: Defense, model: Model, replies: list[Reply]) -> Judgement:
    """Elect with a guard; a round whose model stays as it was would not be worth timing."""
    judged = Guard(defense, seed=0)(model, replies)
    if judged.kept:
        raise RuntimeError(f"the guard kept the model: {judged.entry['reason']}")
    return judged


WAYS: dict[str, Callable[[Model, list[Reply]], Any]] = {
    "plain": average_carefully,
    "flower": average_as_flower,
    "guard": average_guarded,
}


def measure_memory(work: Callable[[], Any]) -> float | None:
    """Return the MiB by which the process grows while a work runs."""
    with PeakMemory() as memory:
        work()
    return memory.growth.get("RssAnon")


def time_parts(model: Model, replies: list[Reply], part: str, defense: Defense, repeats: int) -> dict[str, float]:
    """Return the processor seconds of the main parts of a guarded round; `part` names the defense's."""
    base = read_model(model)
    layout = Layout.from_tensors(base)
    valid, _ = validate_replies(replies, base)
    received = convert_replies(base, layout, valid)
    make_base = partial(layout.to_row, base)
    works: dict[str, Callable[[], Any]] = {
        "validation": lambda: validate_replies(replies, base),
        part: lambda: defense(received.to_updates(finite=True), Context(round=1, base=make_base)),
        "hashes": lambda: [hash_model(base) for _ in range(2)],
    }
    return time_turns(works, repeats)


def time_averages(name: str, clients: int, width: int) -> Case:
    """Time a guard with FedAvg at one size; at least one run precedes the timed ones."""
    model = make_model(width)
    replies = make_replies(model, clients)
    works = {way: lambda average=average: average(model, replies) for way, average in WAYS.items()}
    memory = {f"{way}_mib": measure_memory(work) for way, work in works.items()}
    judged, plain = works["guard"](), works["plain"]()
    difference = max(float(np.abs(judged.tensors[name].numpy() - plain[name]).max()) for name in model)
    del judged, plain
    seconds = time_turns(works, REPEATS if width < LONG else LONG_REPEATS)
    return make_case(
        name,
        seconds["guard"],
        seconds["plain"],
        width=width,
        flower_seconds=seconds["flower"],
        times_plain=seconds["guard"] / seconds["plain"],
        times_flower=seconds["guard"] / seconds["flower"],
        difference=difference,
        parts=add_rest(time_parts(model, replies, "average", FedAvg(), LONG_REPEATS), seconds["guard"]),
        replies_mib=count_mib(replies),
        **memory,
    )


def time_election(name: str, defense: Defense, clients: int, width: int) -> Case:
    """Time a guard with a defense that elects, beside a plain mean and one float32 Gram matrix of the same rows."""
    model = make_model(width)
    replies = make_replies(model, clients)
    rows = stack_rows(replies)
    guard_mib = measure_memory(lambda: elect_guarded(defense, model, replies))
    works: dict[str, Callable[[], Any]] = {
        "guard": lambda: elect_guarded(defense, model, replies),
        "plain": lambda: average_carefully(model, replies),
        "gram": lambda: rows @ rows.T,
    }
    seconds = time_turns(works, LONG_REPEATS)
    reference_seconds = seconds["plain"] + seconds["gram"]
    return make_case(
        name,
        seconds["guard"],
        reference_seconds,
        width=width,
        plain_seconds=seconds["plain"],
        gram_seconds=seconds["gram"],
        times_both=seconds["guard"] / reference_seconds,
        parts=add_rest(time_parts(model, replies, "election", defense, 1), seconds["guard"]),
        replies_mib=count_mib(replies),
        guard_mib=guard_mib,
    )


def stack_rows(replies: list[Reply]) -> Tensor:
    """Return the replies as one float32 matrix."""
    first = replies[0].tensors
    rows = torch.empty(len(replies), sum(array.size for array in first.values()))
    for row, reply in zip(rows, replies, strict=True):
        np.concatenate([array.reshape(-1) for array in reply.tensors.values()], out=row.numpy())
    return rows


def add_rest(parts: dict[str, float], seconds: float) -> dict[str, float]:
    """Return the parts of a round with what is left of its seconds."""
    return {**parts, "rest": max(0.0, seconds - sum(parts.values()))}


def count_mib(replies: list[Reply]) -> float:
    """Return the MiB of all replies."""
    return sum(array.nbytes for reply in replies for array in reply.tensors.values()) / 2**20


def time_guard(name: str, quick: bool) -> Case:
    """Time the case with this name."""
    defense, clients, width = CASES[name]
    width = width // QUICK_DIVISOR if quick else width
    if defense == "fedavg":
        return time_averages(name, clients, width)
    return time_election(name, ELECTING[defense](clients), clients, width)


def run_alone(name: str, quick: bool) -> Case:
    """Run one case in a new process, whose memory no other case has used."""
    case: Case = json.loads(run_module("speed.guard", "--alone", name, *(["--quick"] if quick else [])))
    return case


def run(quick: bool = False) -> dict[str, Any]:
    """Run all cases on this machine; `quick` shortens the rows."""
    return {"machine": describe_machine(), "cases": [run_alone(name, quick) for name in CASES]}


def main() -> None:
    """Print the table, or with --alone one case as JSON."""
    parser = argparse.ArgumentParser(description="Time a guard beside plain weighted means.")
    parser.add_argument("--quick", action="store_true", help="shorter rows")
    parser.add_argument("--alone", choices=CASES, help="only this case, as JSON")
    options = parser.parse_args()
    if not options.alone:
        print(format_cases(run(options.quick)["cases"]))
        return
    with use_one_thread():
        print(json.dumps(time_guard(options.alone, options.quick)))


if __name__ == "__main__":
    main()
