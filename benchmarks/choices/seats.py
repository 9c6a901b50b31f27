"""Why do infected updates win seats on CIFAR-10 at the size for two cores? Each case changes one thing.

    SNOWBALL_DATA=... python -m benchmarks.choices.seats [--only CASE]

It takes rounds of the preset cpu/cifar10, whose model advances by benign updates alone, so that no attacker has won
yet. In each round it holds the paper's bottom-up election. `infected` counts infected updates among the `selectees`;
`share` is the share of infected updates in the round, which is what chance would elect. `between` is the mean distance
between an infected and a benign update, divided by that between two benign ones: at 1, infected updates lie among the
others. `together` is the same for two infected updates. All results are in benchmarks/results/seats.json; with --only,
one case runs and the others are kept.
"""

import argparse
import json
import sys
from typing import Any, NamedTuple

import torch

from benchmarks.files import RESULTS, read_result
from benchmarks.inputs.rounds import Round, capture_rounds, parse_rounds
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import use_one_thread
from snowball.defenses import Context, Snowball, SnowballMinus
from snowball.sim.presets import load_experiment
from snowball.sim.round_record import measure_distances

EARLY = (2, 4, 8, 12, 16, 20)


class Case(NamedTuple):
    """A preset, the changes to it, and the rounds to examine."""

    preset: str
    changes: tuple[str, ...] = ()
    rounds: tuple[int, ...] = EARLY


CASES = {
    "as it is": Case("cpu/cifar10"),
    "later": Case("cpu/cifar10", ("rounds=120",), (40, 80, 120)),
    "5 epochs": Case("cpu/cifar10", ("training.epochs=5",)),
    "the seven-layer network, a quarter": Case("cpu/cifar10", ("model.name=cifar-cnn-quarter",)),
    "mild label skew": Case("cpu/cifar10", ("data.alpha=10",)),
    "MNIST": Case("cpu/mnist"),
}
"""Cases by name."""


def count_seats(taken: Round, snowball: Snowball) -> dict[str, Any]:
    """Hold the bottom-up election of a round, and measure the distances between its updates."""
    elect = SnowballMinus(snowball.clusters, first_share=snowball.first_share, ballot_floor=snowball.ballot_floor)
    elected = elect(taken.updates, Context(round=1)).elected
    means = measure_distances(taken.updates.products(), taken.infected.tolist())
    return {
        "round": taken.number,
        "selectees": int(elected.sum()),
        "infected": int((elected & taken.infected).sum()),
        "share": float(taken.infected.double().mean()),
        "between": means["between"] / means["benign"],
        "together": means["infected"] / means["benign"],
    }


def run_case(name: str) -> dict[str, Any]:
    """Hold the elections of a case."""
    preset, changes, rounds = CASES[name]
    tensors = capture_rounds(load_experiment(preset, ["defense.name=ideal", *changes]), rounds)
    with use_one_thread():
        held = [count_seats(taken, load_experiment(preset).defense.build()) for taken in parse_rounds(tensors)]
    found = {"name": name, "preset": preset, "changes": changes, "rounds": held}
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Run every case, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="play this one and keep the others")
    only = parser.parse_args().only
    kept = {case["name"]: case for case in read_result("seats")["cases"]} if only else {}
    wanted = [name for name in CASES if only in (None, name) or name in kept]
    cases = [run_case(name) if only in (None, name) else kept[name] for name in wanted]
    (RESULTS / "seats.json").write_text(
        json.dumps({"machine": describe_machine(), "cases": cases}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
