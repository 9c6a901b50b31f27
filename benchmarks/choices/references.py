"""Compares the numbers of clusters found with our references of the Gap statistic and with all their columns drawn.

Among many rows, most columns of a wide layer's references are not drawn. The number found depends on the draws, so all
columns are also drawn a second time. Rounds are two real ones of 150 clients, with those weight layers of the paper's
CNN that are wide enough, and a synthetic one.

    python -m benchmarks.choices.references          (some minutes)
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.inputs.rounds import World
from benchmarks.inputs.synthetic import make_layers, make_updates
from benchmarks.measuring.timing import use_one_thread
from snowball.defenses.snowball import gap, references
from snowball.defenses.snowball.references import ENOUGH_COLUMNS, WIDEST, draw_reference
from snowball.rng import stream
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.updates import Updates

Draw = Callable[[int, Tensor, torch.Generator], Tensor]

REAL = World("mnist", "cnn", 150, 150, (1, 4), epochs=1, examples=15_000)
SYNTHETIC = 200
WIDE = {"first.weight": (50, 100), "last.weight": (150, 100)}
SEEDS = range(6)
FEWEST, MOST = 3, 15


def draw_all(rows: int, ranges: Tensor, rng: torch.Generator) -> Tensor:
    """Return a reference of which every column is drawn."""
    with patch.object(references, "WIDEST", len(ranges)):
        return draw_reference(rows, ranges, rng)


def draw_others(rows: int, ranges: Tensor, rng: torch.Generator) -> Tensor:
    """Return another reference of which every column is drawn."""
    return draw_all(rows, ranges, stream(int(torch.randint(1 << 31, (1,), generator=rng)), "benchmark", "others"))


WAYS: dict[str, Draw] = {"all": draw_all, "others": draw_others, "ours": draw_reference}


def find_clusters(updates: Updates, layer: str, draw: Draw, seeds: Sequence[int] = SEEDS) -> list[int]:
    """Return the number of clusters found with each seed."""
    with patch.object(gap, "draw_reference", draw):
        return [
            gap.find_clusters(updates, layer, FEWEST, MOST, stream(seed, "benchmark", "references"), "first")
            for seed in seeds
        ]


def capture_updates(world: World) -> dict[str, Updates]:
    """Simulate the rounds of a world, and return their updates by the name of the round."""
    federation, kept = Federation.build(Experiment.parse(world.settings())), {}

    def observe(updates: Updates, malicious: Sequence[bool], number: int) -> None:
        if number in world.rounds:
            layers = {name: updates.read_columns(columns) for name, columns in updates.layout.columns.items()}
            kept[f"{world.data}/{number}"] = make_updates(
                {name: values for name, values in layers.items() if name.endswith("weight")}
            )

    for _ in simulate(federation, partial(ProcessEngine, workers=1), build_first_state(federation), observe):
        pass
    return kept


def read_layers() -> Iterator[tuple[str, Updates, str]]:
    """Yield the name, the updates and the layer of each case, leaving out layers that are drawn in full anyway."""
    rounds = {"synthetic": make_updates(make_layers(SYNTHETIC, WIDE)), **capture_updates(REAL)}
    for name, updates in rounds.items():
        for layer, columns in updates.layout.columns.items():
            if columns.stop - columns.start >= WIDEST + ENOUGH_COLUMNS * len(updates):
                yield name, updates, layer


def count_equal(one: list[int], other: list[int]) -> int:
    """Count the seeds with which both found the same number."""
    return sum(first == second for first, second in zip(one, other, strict=True))


def main() -> None:
    """Print one line per round and layer, and in how many cases the number is the same."""
    pairs = {"all columns twice": ("all", "others"), "all columns and ours": ("all", "ours")}
    totals, cases = dict.fromkeys(pairs, 0), 0
    with use_one_thread():
        for name, updates, layer in read_layers():
            found = {way: find_clusters(updates, layer, draw) for way, draw in WAYS.items()}
            print(name, layer, found, flush=True)
            cases += len(SEEDS)
            for label, (one, other) in pairs.items():
                totals[label] += count_equal(found[one], found[other])
    for label, same in totals.items():
        print(f"{label}: the same number in {same} of {cases}")


if __name__ == "__main__":
    main()
