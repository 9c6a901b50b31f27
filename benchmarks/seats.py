"""Why do infected updates win seats on CIFAR-10 at the size for two cores? One thing is changed at a time.

    SNOWBALL_DATA=... python benchmarks/seats.py > benchmarks/results/seats.json

Rounds of the preset cpu/cifar10, whose model moves on by its benign updates alone, so that nobody has won yet. In each
the paper's bottom-up election is held: `infected` counts infected updates among the `selectees`, `share` is that of
infected updates in the round, which chance would give them. `between` is the mean distance of an infected update to a
benign one, over that of two benign ones: where it is 1, infected updates lie among the others; `together` is that of
two infected ones.
"""

import json
import sys
from typing import Any

import torch

from machine import describe
from rounds import Round, capture, kept_rounds
from snowball.defenses import Context, Snowball, SnowballMinus
from snowball.sim.experiment import load
from snowball.sim.loop import distances
from timing import one_thread

ROUNDS = (2, 4, 8, 12, 16, 20)
CASES = {
    "as it is": ("cpu/cifar10", ()),
    "5 epochs": ("cpu/cifar10", ("training.epochs=5",)),
    "the seven-layer network, a quarter": ("cpu/cifar10", ("model.name=cifar-cnn-quarter",)),
    "mild label skew": ("cpu/cifar10", ("data.alpha=10",)),
    "MNIST": ("cpu/mnist", ()),
}
"""What a case is called, its preset and what it changes."""


def seats(taken: Round, snowball: Snowball) -> dict[str, Any]:
    """The bottom-up election of a round, and how its updates lie."""
    elect = SnowballMinus(snowball.clusters, first_share=snowball.first_share, ballot_floor=snowball.ballot_floor)
    elected = elect(taken.updates, Context(1)).elected
    means = distances(taken.updates.products(), taken.infected.tolist())
    return {
        "round": taken.number,
        "selectees": int(elected.sum()),
        "infected": int((elected & taken.infected).sum()),
        "share": float(taken.infected.double().mean()),
        "between": means["between"] / means["benign"],
        "together": means["infected"] / means["benign"],
    }


def main() -> None:
    """Play every case."""
    cases = []
    for name, (preset, changes) in CASES.items():
        snowball = load(preset).defense.build()
        tensors = capture(load(preset, ["defense.name=ideal", *changes]), ROUNDS)
        with one_thread():
            rounds = [seats(taken, snowball) for taken in kept_rounds(tensors)]
        cases.append({"name": name, "preset": preset, "changes": changes, "rounds": rounds})
        print(json.dumps(cases[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe(), "cases": cases}, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
