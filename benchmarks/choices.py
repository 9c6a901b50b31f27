"""What the defaults were decided by: elections over real rounds, counted against the truth.

    python benchmarks/rounds.py FOLDER && python benchmarks/choices.py FOLDER > benchmarks/results/choices.json

Three tables: infected among the selectees for each floor of a ballot's weight; the same for each number of clusters;
false positive and false negative rates after the top-down election for each judge.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from machine import describe
from rounds import WORLDS, Round, read
from snowball.defenses import Context, Snowball, SnowballMinus
from snowball.records import error_rates

FLOORS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLUSTERS: tuple[int | str, ...] = (2, 3, 4, 6, 8, 11, 15, "gap")
JUDGES = ("distance", "vae-span", "vae")
JUDGED = (4, 8, 9, 20)
"""Rounds that the judges are compared in: the published one takes a minute each."""


def rates(rounds: Iterable[Round], defense: Callable[[Round], Any]) -> dict[str, Any]:
    """Both error rates over the rounds together."""
    malicious, elected = [], []
    for taken in rounds:
        malicious += taken.infected.tolist()
        elected += defense(taken).elected.tolist()
    false_positive, false_negative = error_rates(malicious, elected)
    infected = sum(bad and chosen for bad, chosen in zip(malicious, elected, strict=True))
    return {"infected": infected, "of": sum(elected), "fpr": false_positive, "fnr": false_negative}


def selectees(rounds: list[Round], **settings: Any) -> dict[str, Any]:
    """The bottom-up election alone; the number of clusters, if to be found, is the first round's."""
    state = SnowballMinus(**settings)(rounds[0].updates, Context(1)).state
    return rates(rounds, lambda taken: SnowballMinus(**settings)(taken.updates, Context(taken.number, state=state)))


def judged(rounds: list[Round], judge: str) -> dict[str, Any]:
    """Both elections, the second by this judge."""
    defense = Snowball(judge=judge, grow_after=0)
    state = SnowballMinus()(rounds[0].updates, Context(1)).state
    chosen = [taken for taken in rounds if taken.number in JUDGED]
    return rates(chosen, lambda taken: defense(taken.updates, Context(taken.number, state=state)))


def main(folder: Path) -> None:
    """Fill the tables from every world that is there."""
    torch.set_num_threads(1)
    tables: dict[str, Any] = {"floors": {}, "clusters": {}, "judges": {}}
    for name in WORLDS:
        file = folder / f"{name}.safetensors"
        if not file.exists():
            continue
        rounds = list(read(file))
        sites = len(rounds[0].updates)
        tables["floors"][name] = {str(floor): selectees(rounds, ballot_floor=floor) for floor in FLOORS}
        tables["clusters"][name] = {
            str(count): selectees(rounds, clusters=count) for count in CLUSTERS if count == "gap" or int(count) < sites
        }
        if sites >= 50:
            tables["judges"][name] = {judge: judged(rounds, judge) for judge in JUDGES}
        print(name, json.dumps({table: rows.get(name) for table, rows in tables.items()}), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe(), **tables}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
