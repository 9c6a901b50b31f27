"""Runs federations of few sites, which the paper does not cover, with several settings of Snowball.

    python -m benchmarks.choices.cohorts > benchmarks/results/cohorts.json

Every site takes part in every round. MNIST sample, quarter-size CNN, 120 examples per site on average, two local
epochs, 20 rounds, 30 % of an infected site's examples poisoned (CBA), three seeds.
"""

import json
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.measuring.machine import describe_machine
from snowball.records.summary import summarise_rounds
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate

SITES = {4: 1, 5: 1, 6: 1, 8: 2, 10: 2, 15: 3, 20: 2}  # number of sites: number of infected sites
SEEDS = (1, 2, 3)
DEFENSES: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "ideal": {"name": "ideal"},
    "gap": {"name": "snowball"},
    "4 clusters": {"name": "snowball", "clusters": 4},
    "11 clusters": {"name": "snowball", "clusters": 11},
    "gap, a third first": {"name": "snowball", "first_share": 0.34},
}


def list_cases() -> Iterator[tuple[int, str, int]]:
    """Yield the sites, defense and seed of every run; the number of clusters must be below the number of sites."""
    for sites in SITES:
        for name, settings in DEFENSES.items():
            if settings.get("clusters", 0) < sites:
                yield from ((sites, name, seed) for seed in SEEDS)


def run_case(case: tuple[int, str, int]) -> dict[str, Any]:
    """Run one case, and return its headline."""
    torch.set_num_threads(1)
    sites, name, seed = case
    settings = {
        "seed": seed,
        "rounds": 20,
        "cohort": sites,
        "data": {"name": "mnist-sample", "clients": sites, "alpha": 0.5, "examples": 120 * sites},
        "model": {"name": "cnn-quarter"},
        "training": {"epochs": 2},
        "attack": {"name": "cba", "malicious": SITES[sites] / sites, "poison_ratio": 0.3},
        "defense": DEFENSES[name],
    }
    rounds = list(simulate(Federation.build(Experiment.parse(settings))))
    clusters = rounds[0]["facts"].get("clusters")
    labels = {"sites": sites, "infected": SITES[sites], "defense": name, "seed": seed, "clusters": clusters}
    return labels | summarise_rounds(rounds).plain()


def main() -> None:
    """Run every case on two processes, and print all headlines."""
    with get_context("forkserver").Pool(2) as pool:
        results = []
        for result in pool.imap(run_case, list(list_cases())):
            results.append(result)
            print(json.dumps(result), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe_machine(), "runs": results}, indent=1))


if __name__ == "__main__":
    main()
