"""Times the elections beside a plain implementation (baselines/reference.py), and checks that both elect the same.

One process, and one thread unless a case says two. The cases with 50 rows use a real round from tests/golden, the
fourth of the paper's MNIST setting; larger ones are synthetic (inputs/synthetic.py). Every defense is also timed
beside FedAvg (peers.py).

    python -m benchmarks.speed.elections [--quick]
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.baselines import reference
from benchmarks.baselines.lloyd import run_plain_lloyd, score_plainly
from benchmarks.files import GOLDEN
from benchmarks.inputs.synthetic import SEED, Shapes, make_columns, make_factors, make_layers, make_updates
from benchmarks.measuring.machine import PeakMemory, describe_machine
from benchmarks.measuring.processes import run_module
from benchmarks.measuring.timing import Case, format_cases, make_case, time_fastest, time_turns, use_one_thread
from benchmarks.speed import peers
from snowball.defenses.base import Context
from snowball.defenses.snowball import Snowball, VAESettings
from snowball.defenses.snowball.bottom_up import Ballots, choose_centroids, count_ballots, weigh_ballots
from snowball.defenses.snowball.gap import find_clusters
from snowball.defenses.snowball.judges import JUDGES
from snowball.defenses.snowball.top_down import grow_elected
from snowball.defenses.snowball_plus import SnowballPlus
from snowball.products import split_columns
from snowball.rng import numpy_stream, stream
from snowball.updates import Updates

CLUSTERS = 11
FIRST_SHARE, TARGET_SHARE, STEP_SHARE = 0.1, 0.5, 0.04

REAL_ROUND = "mnist-paper/4/layer/"
RANKED = ("vae", "vae-span", "distance")
"""The judges of differences, whose ranking is compared with the reference's."""
WIDE: Shapes = {"first.weight": (50, 100), "last.weight": (150, 100)}
HUGE: Shapes = {"first.weight": (200, 100), "last.weight": (800, 100)}
PAPER_CNN: Shapes = {
    "conv1.weight": (32, 1, 5, 5),
    "conv2.weight": (64, 32, 5, 5),
    "fc1.weight": (256, 1600),
    "fc2.weight": (10, 256),
}


# Rows


def read_real_layers() -> dict[str, Tensor]:
    """Read the 50 updates of a real round, in the first and last layer of the paper's CNN."""
    tensors = load_file(GOLDEN)
    return {name.removeprefix(REAL_ROUND): tensors[name] for name in sorted(tensors) if name.startswith(REAL_ROUND)}


def write_rows(path: Path, clients: int, width: int) -> None:
    """Write a file of (K, width) float32 rows, block by block: the rows need not fit in memory."""
    factors, block = make_factors(clients), 100_000
    generator = numpy_stream(SEED, "benchmark", "file", clients)
    rows = np.memmap(path, np.float32, "w+", shape=(clients, width))
    for start in range(0, width, block):
        columns = slice(start, min(start + block, width))
        rows[:, columns] = make_columns(factors, columns.stop - columns.start, generator)
    rows.flush()


# Timed work


def elect_bottom_up(updates: Updates) -> Ballots:
    """Hold the package's bottom-up election, including its Gram matrices."""
    return count_ballots(updates, updates.layout.names, CLUSTERS)


def grow_ours(updates: Updates, first: list[int], judge: str, quick: bool, threads: int = 1) -> list[int]:
    """Return the rows that the package's top-down election elects, with Gram matrices if the judge uses them."""
    target, step = count_growth(len(updates))
    selectees = torch.zeros(len(updates), dtype=torch.bool)
    selectees[first] = True
    generator = stream(SEED, "benchmark", judge)
    settings = VAESettings(**choose_epochs(quick), cpu_threads=threads)
    appointed = JUDGES[judge](updates, updates.layout.names, settings, generator)
    growth = grow_elected(selectees, target, step, appointed, torch.arange(len(updates)))
    elected: list[int] = growth.elected.nonzero()[:, 0].tolist()
    return elected


def grow_plainly(rows: Tensor, first: list[int], quick: bool) -> list[int]:
    """Return the rows that the reference's top-down election elects."""
    generator = stream(SEED, "benchmark", "vae")
    target, step = count_growth(len(rows))
    return reference.elect_top_down(rows, first, target, step, generator=generator, **choose_epochs(quick))


def warm_up() -> None:
    """Make torch load what its first optimiser needs, before anything is timed."""
    reference.elect_top_down(
        torch.eye(4), [0, 1], 3, 1, generator=stream(SEED, "warm-up"), first_epochs=1, tune_epochs=1
    )


def elect(updates: Updates) -> Tensor:
    """Return the (K,) mask that the whole defense elects: both elections and the mean."""
    defense = Snowball(clusters=CLUSTERS, judge="distance", grow_after=0)
    return defense(updates, Context(round=1)).elected


# Cases


def count_agreement(ours: list[int], theirs: list[int]) -> dict[str, int]:
    """Count the rows that the reference elects, and those of them that the package elects too."""
    return {"agree": len(set(ours) & set(theirs)), "of": len(theirs)}


def count_selectees(clients: int) -> int:
    """Return the number of selectees of a bottom-up election."""
    return ceil(FIRST_SHARE * clients)


def count_growth(clients: int) -> tuple[int, int]:
    """Return the target and step of a top-down election."""
    return int(TARGET_SHARE * clients), ceil(STEP_SHARE * clients)


def time_bottom_up(name: str, layers: Mapping[str, Tensor], repeats: int, reference_repeats: int) -> Case:
    """Time the vote alone, from rows to totals."""
    seconds, ballots = time_fastest(elect_bottom_up, lambda: make_updates(layers), repeats)
    arrays = [layer.flatten(1).numpy() for layer in layers.values()]
    reference_seconds, votes = time_fastest(
        partial(reference.elect_bottom_up, clusters=CLUSTERS), lambda: arrays, reference_repeats
    )
    seats = count_selectees(len(votes.totals))
    elected = count_agreement(
        reference.choose_selectees(ballots.totals.numpy(), seats), reference.choose_selectees(votes.totals, seats)
    )
    totals = torch.stack([*ballots.votes.values()]).sum(0).numpy()  # not rounded yet
    difference = float(np.abs(totals - votes.totals).max())
    return make_case(name, seconds, reference_seconds, **elected, totals_difference=difference)


def choose_epochs(quick: bool) -> dict[str, int]:
    """Return the paper's epochs on MNIST, or a third of them: with fewer, the VAE elects by chance."""
    return {"first_epochs": 90, "tune_epochs": 10} if quick else {"first_epochs": 270, "tune_epochs": 30}


def time_top_down(quick: bool) -> Iterator[Case]:
    """Time the growth from the reference's selectees to half of the rows, with each judge; the reference runs once."""
    layers = read_real_layers()
    arrays = [layer.flatten(1) for layer in layers.values()]
    votes = reference.elect_bottom_up([array.numpy() for array in arrays], CLUSTERS)
    clients = len(votes.totals)
    first = reference.choose_selectees(votes.totals, count_selectees(clients))
    warm_up()
    reference_seconds, theirs = time_fastest(
        partial(grow_plainly, first=first, quick=quick), lambda: torch.cat(arrays, 1), 1
    )
    for judge in RANKED:
        work = partial(grow_ours, first=first, judge=judge, quick=quick)
        repeats = 10 if judge == "distance" else 1
        seconds, ours = time_fastest(work, lambda: make_updates(layers), repeats)
        yield make_case(f"top-down k{clients} {judge}", seconds, reference_seconds, **count_agreement(ours, theirs))


def time_two_threads(name: str, quick: bool) -> Case:
    """Time the growth by the published VAE on two threads; the reference is the same on one."""
    layers = read_real_layers()
    votes = reference.elect_bottom_up([layer.flatten(1).numpy() for layer in layers.values()], CLUSTERS)
    first = reference.choose_selectees(votes.totals, count_selectees(len(votes.totals)))
    warm_up()
    work = partial(grow_ours, first=first, judge="vae", quick=quick)
    one, two = (time_fastest(partial(work, threads=threads), lambda: make_updates(layers), 2) for threads in (1, 2))
    return make_case(name, two[0], one[0], **count_agreement(two[1], one[1]))


def time_gram(name: str, quick: bool) -> Case:
    """Time the Gram matrix of rows in a file, and the elections after it, which no longer depend on the width.

    The reference multiplies the same blocks in float32. Both take turns; seconds are processor time.
    """
    clients, width = 100, 1_000_000 if quick else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        write_rows(path, clients, width)
        rows = torch.from_file(str(path), size=clients * width, dtype=torch.float32).view(clients, width)
        with PeakMemory() as memory:
            wide = compute_gram(rows)
        after = {
            str(updates.layout.width): time_after_gram(updates)
            for updates in (wide, compute_gram(rows[:, : width // 100]))
        }
        updates = [make_updates({"rows": rows}) for _ in range(2)]  # each keeps its Gram matrix
        works = {"gram": lambda: updates.pop().gram("rows"), "float32": lambda: multiply_plainly(rows)}
        seconds = time_turns(works, 2)
    facts = {**describe_memory(memory), "after_gram_seconds": after}
    return make_case(name, seconds["gram"], seconds["float32"], width=width, **facts)


def compute_gram(rows: Tensor) -> Updates:
    """Return the updates with these rows, which keep their Gram matrix."""
    updates = make_updates({"rows": rows})
    updates.gram("rows")
    return updates


def multiply_plainly(rows: Tensor) -> Tensor:
    """Return the (K, K) inner products of rows, block by block in float32."""
    total = torch.zeros(len(rows), len(rows))
    for columns in split_columns(slice(0, rows.shape[1]), len(rows)):
        block = rows[:, columns].contiguous()
        total += block @ block.T
    return total


def time_after_gram(updates: Updates) -> float:
    """Return the seconds of both elections, given the Gram matrix."""

    def elect(updates: Updates) -> None:
        first = reference.choose_selectees(elect_bottom_up(updates).totals.numpy(), count_selectees(len(updates)))
        grow_ours(updates, first, "distance", quick=False)

    return time_fastest(elect, lambda: updates, 3)[0]


def time_elections(name: str, quick: bool) -> Case:
    """Time the whole defense on a thousand updates."""
    updates = make_updates(make_layers(1000, WIDE if quick else HUGE))
    with PeakMemory() as memory:
        seconds, _ = time_fastest(elect, lambda: updates, 1)
    return make_case(name, seconds, None, width=updates.layout.width, **describe_memory(memory))


def time_votes(name: str, quick: bool, clients: int) -> Case:
    """Time the votes of many updates beside plain steps of K-means, both after the Gram matrices."""
    updates = make_updates(make_layers(clients, WIDE if quick else HUGE))
    elect_bottom_up(updates)  # keeps the Gram matrices
    seconds, ours = time_fastest(elect_bottom_up, lambda: updates, 3)
    plain, theirs = time_fastest(vote_plainly, lambda: updates, 2)
    seats = count_selectees(clients)
    elected = count_agreement(
        reference.choose_selectees(ours.totals.numpy(), seats), reference.choose_selectees(theirs.numpy(), seats)
    )
    difference = float((torch.stack([*ours.votes.values()]).sum(0) - theirs).abs().max())
    return make_case(name, seconds, plain, **elected, totals_difference=difference)


def vote_plainly(updates: Updates) -> Tensor:
    """Return the (K,) totals of the bottom-up election by plain steps in the Gram matrices."""
    totals = torch.zeros(len(updates), dtype=torch.float64)
    for layer in updates.layout.names:
        gram = updates.products(layer)
        labels = run_plain_lloyd(gram, choose_centroids(gram, CLUSTERS))
        weights = weigh_ballots(score_plainly(gram, labels, CLUSTERS), 0.0)
        totals += weights @ (labels == labels.diagonal()[:, None]).double()
    return totals


def time_gap(name: str, quick: bool) -> Case:
    """Time the search for the number of clusters beside the votes with this number, both after the Gram matrices."""
    updates = make_updates(make_layers(200 if quick else 1000, WIDE if quick else HUGE))
    elect_bottom_up(updates)  # keeps the Gram matrices
    votes, _ = time_fastest(elect_bottom_up, lambda: updates, 2)
    seconds, found = time_fastest(search_clusters, lambda: updates, 1)
    return make_case(name, seconds, None, found=found, votes=votes, times_votes=seconds / votes)


def search_clusters(updates: Updates) -> list[int]:
    """Return the number of clusters of each layer by the Gap statistic."""
    return [
        find_clusters(updates, layer, 3, 15, stream(SEED, "benchmark", "gap"), "first")
        for layer in updates.layout.names
    ]


def time_accusing(name: str, quick: bool) -> Case:
    """Time Snowball-plus on the paper's CNN, in the round after an accusation, so that it makes every pass."""
    layers = make_layers(50, PAPER_CNN)
    updates = make_updates(layers)
    context = peers.make_context(updates)
    with PeakMemory() as memory:
        after = peers.run_rounds(SnowballPlus(), updates, context, 2)
    timed = peers.time_defense("snowball-plus", layers, context, 1 if quick else 3)
    facts = {"charges": (after.state or {})["charges"], "beside_fedavg": timed["times_fedavg"]}
    return make_case(name, timed["seconds"], None, width=updates.layout.width, **facts, **describe_memory(memory))


def describe_memory(memory: PeakMemory) -> dict[str, float | None]:
    """Return the peak growth in MiB: private memory, and with the pages of mapped files, which the system may drop."""
    return {
        "peak_mib": memory.growth.get("RssAnon"),
        "peak_with_file_pages_mib": memory.growth.get("VmRSS"),
    }


ALONE: dict[str, Callable[[str, bool], Case]] = {
    "top-down k50 vae two threads": time_two_threads,
    "gram k100 d10000000": time_gram,
    "elections k1000 d100000": time_elections,
    "votes k500 d100000": partial(time_votes, clients=500),
    "votes k1000 d100000": partial(time_votes, clients=1000),
    "gap k1000 d100000": time_gap,
    "snowball-plus k50 d464160": time_accusing,
}
"""Cases that need their own process: leftovers of other cases would hide how memory grows, or have started threads."""


def run_alone(name: str, quick: bool) -> Case:
    """Run one of those cases in a new process."""
    case: Case = json.loads(run_module("speed.elections", "--alone", name, *(["--quick"] if quick else [])))
    return case


def run_cases(quick: bool) -> Iterator[Case]:
    """Yield every case, in the order of the result."""
    repeats = 10 if quick else 30
    yield time_bottom_up("bottom-up k50 d3360", read_real_layers(), repeats, 1 if quick else 3)
    yield time_bottom_up("bottom-up k200 d20000", make_layers(200, WIDE), repeats, 1)
    yield from time_top_down(quick)
    yield from (run_alone(name, quick) for name in ALONE)
    yield from peers.run_cases(quick)


def run(quick: bool = False) -> dict[str, Any]:
    """Run all cases on this machine; `quick` cuts repeats, widths and, on both sides alike, the VAE's epochs."""
    with use_one_thread():
        return {"machine": describe_machine(), "cases": list(run_cases(quick))}


def main() -> None:
    """Print the table, or with --alone one case as JSON."""
    parser = argparse.ArgumentParser(description="Time the elections against the method done plainly.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, epochs and columns")
    parser.add_argument("--alone", choices=ALONE, help="only this case, as JSON")
    options = parser.parse_args()
    if options.alone:
        with use_one_thread():
            print(json.dumps(ALONE[options.alone](options.alone, options.quick)))
    else:
        print(format_cases(run(options.quick)["cases"]))


if __name__ == "__main__":
    main()
