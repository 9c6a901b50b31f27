"""Measures the elections that the defaults are based on: real rounds, compared with the truth.

    python -m benchmarks.inputs.rounds FOLDER
    python -m benchmarks.choices.defaults FOLDER > benchmarks/results/defaults.json

It fills five tables:

- for each floor of a ballot's weight: infected selectees, and selectees that differ from those without a floor;
- for each number of clusters: infected selectees;
- infected selectees, round by round;
- the number of clusters that the Gap statistic finds;
- for each judge: error rates after both elections.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from benchmarks.inputs.rounds import WORLDS, Round, read_rounds
from benchmarks.measuring.machine import describe_machine
from snowball.defenses import Context, Snowball, SnowballMinus
from snowball.records.rounds import compute_error_rates

FLOORS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLUSTERS: tuple[int | Literal["gap"], ...] = (2, 3, 4, 6, 8, 11, 15, "gap")
JUDGES = ("distance", "vae-span", "vae")
SEEDS = range(6)
JUDGED = (4, 8, 9, 20)
"""Rounds in which the judges are compared: the published one takes a minute for each."""


def elect_rounds(rounds: list[Round], defense: SnowballMinus) -> Tensor:
    """Return the elected clients of all rounds in a row; a number of clusters to be found is the first round's."""
    state = defense(rounds[0].updates, Context(round=1)).state
    verdicts = [defense(taken.updates, Context(round=taken.number, state=state)) for taken in rounds]
    return torch.cat([verdict.elected for verdict in verdicts])


def count_errors(rounds: list[Round], chosen: Tensor) -> dict[str, Any]:
    """Count the elected and the infected among them, and compute both error rates."""
    infected = torch.cat([taken.infected for taken in rounds])
    false_positive, false_negative = compute_error_rates(infected.tolist(), chosen.tolist())
    found = {"infected": int((chosen & infected).sum()), "of": int(chosen.sum())}
    return found | {"fpr": false_positive, "fnr": false_negative}


def compare_floors(rounds: list[Round]) -> dict[str, Any]:
    """Hold the bottom-up election with each floor, and count the selectees that differ from those without a floor."""
    chosen = {floor: elect_rounds(rounds, SnowballMinus(ballot_floor=floor)) for floor in FLOORS}
    return {
        str(floor): count_errors(rounds, mask) | {"changed": int((mask & ~chosen[0.0]).sum())}
        for floor, mask in chosen.items()
    }


def compare_clusters(rounds: list[Round]) -> dict[str, Any]:
    """Hold the bottom-up election with each number of clusters for which there are enough updates."""
    possible = [number for number in CLUSTERS if number == "gap" or number < len(rounds[0].updates)]
    return {
        str(number): count_errors(rounds, elect_rounds(rounds, SnowballMinus(clusters=number))) for number in possible
    }


def count_by_round(rounds: list[Round]) -> dict[str, Any]:
    """Hold the bottom-up election with the defaults, round by round."""
    masks = elect_rounds(rounds, SnowballMinus()).split(len(rounds[0].updates))
    return {str(taken.number): count_errors([taken], mask) for taken, mask in zip(rounds, masks, strict=True)}


def find_clusters(rounds: list[Round]) -> list[int]:
    """Return the number of clusters that the Gap statistic finds in the first round, for several seeds."""
    return [int(SnowballMinus()(rounds[0].updates, Context(round=1, seed=seed)).facts["clusters"]) for seed in SEEDS]


def compare_judges(rounds: list[Round]) -> dict[str, Any]:
    """Hold both elections, the second with each judge."""
    chosen = [taken for taken in rounds if taken.number in (1, *JUDGED)]
    later = [taken for taken in rounds if taken.number in JUDGED]
    masks = {judge: elect_rounds(chosen, Snowball(judge=judge, grow_after=1)) for judge in JUDGES}
    skipped = len(chosen[0].updates)
    return {judge: count_errors(later, mask[skipped:]) for judge, mask in masks.items()}


TABLES: dict[str, Callable[[list[Round]], Any]] = {
    "floors": compare_floors,
    "clusters": compare_clusters,
    "rounds": count_by_round,
    "found": find_clusters,
    "judges": compare_judges,
}


def main(folder: Path) -> None:
    """Fill the tables from every world in the folder, the judges' table from the large ones."""
    torch.set_num_threads(1)
    results: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for world in WORLDS:
        if not (folder / f"{world}.safetensors").exists():
            continue
        rounds = list(read_rounds(folder / f"{world}.safetensors"))
        for name, table in TABLES.items():
            if name != "judges" or len(rounds[0].updates) >= 50:
                results[name][world] = table(rounds)
                print(world, name, json.dumps(results[name][world]), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe_machine(), **results}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
