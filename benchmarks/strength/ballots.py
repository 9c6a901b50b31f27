"""Measures the value of each ballot and each trace of snowball-plus alone, and where they accuse honest clients.

    SNOWBALL_DATA=... python -m benchmarks.strength.ballots

Worlds and seed 1 are those of `judge.py tune`. The model advances by honest updates alone (Ideal; FedAvg where nobody
attacks), so that every ballot sees the same rounds, in which no backdoor has settled. For each ballot,
benchmarks/results/ballots.json has the share of rounds in which it charges somebody and, over these rounds, the share
of infected updates that its charge misses and of honest ones that it names; `joint` is the same after all traces have
judged together. A trace's number is the share of pairs of an infected and an honest update that it orders correctly,
given the ballot's suspects: 0.5 is chance.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from benchmarks.files import RESULTS
from benchmarks.measuring.machine import describe_machine
from benchmarks.strength.worlds import CLEAN, Cell, Job, make_experiment
from snowball.defenses import Context, SnowballPlus
from snowball.defenses.snowball_plus.ballots import (
    Charge,
    charge_crowd,
    charge_position,
    charge_recalled,
    charge_reputation,
    charge_split,
    measure_signals,
)
from snowball.defenses.snowball_plus.evidence import Evidence, gather_evidence
from snowball.defenses.snowball_plus.few import charge_strangers
from snowball.defenses.snowball_plus.joint import judge_together, score_traces
from snowball.defenses.snowball_plus.memory import Memory, read_memory, read_traits
from snowball.defenses.snowball_plus.method import update_records
from snowball.defenses.snowball_plus.statistics import rank_group
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.updates import Updates

SEED = 1

CELLS = (
    Cell("mnist-a0.5-m30", "cba"),
    Cell("mnist-a0.5-m30", "adaptive"),
    Cell("mnist-a0.1-m30", "cba"),
    Cell("fashion-mnist-a0.1-m30", "cba"),
    Cell("cifar10-m20", "cba"),
    Cell("sites-8", "cba"),
    Cell("mnist-a0.5-m20", CLEAN),
    Cell("mnist-a0.1-m20", CLEAN),
    Cell("fashion-mnist-a0.1-m20", CLEAN),
    Cell("cifar10-m20", CLEAN),
    Cell("sites-8", CLEAN),
)


def make_benign_experiment(cell: Cell) -> Experiment:
    """Make a cell's experiment in which attackers train as usual, but only honest updates move the model."""
    settings = make_experiment(Job(cell, "fedavg", SEED)).dump_settings()
    return Experiment.parse({**settings, "defense": {"name": "fedavg" if cell.attack == CLEAN else "ideal"}})


class Watch:
    """Holds each ballot of every round of a federation separately, with the memory of the whole defense."""

    def __init__(self, rounds: int) -> None:
        self.defense, self.rounds = SnowballPlus(), rounds
        self.state: Any = None
        self.charges: dict[str, list[dict[str, float | None]]] = defaultdict(list)
        self.traces: dict[str, list[float]] = defaultdict(list)

    def see(self, updates: Updates, infected: Sequence[bool], round: int, base: Tensor) -> None:
        """Examine a round; `base` is the model that it started from."""
        context = Context(round=round, rounds=self.rounds, base=base, seed=SEED, state=self.state)
        memory = read_memory(context, updates.layout)
        evidence = gather_evidence(updates, base, memory.recalled)
        self.state = self.defense(updates, context).state
        truth = torch.tensor(infected)
        for name, charge in hold_ballots(evidence, memory, updates, context).items():
            self.charges[name].append(judge_charge(evidence, charge, truth))
            if charge and truth.any():
                for trace, scores in score_traces(evidence, charge.suspects).items():
                    self.traces[trace].append(order_rightly(scores, truth))

    def summarise(self) -> dict[str, Any]:
        """Summarise all rounds."""
        ballots = {name: summarise_charges(charges) for name, charges in self.charges.items()}
        return {"ballots": ballots, "traces": {name: fmean(values) for name, values in self.traces.items()}}


def hold_ballots(evidence: Evidence, memory: Memory, updates: Updates, context: Context) -> dict[str, Charge | None]:
    """Return each ballot's charge as if it were alone, with the memory before the round and the round's own records."""
    signals = measure_signals(evidence)
    known = update_records(memory, evidence, signals, updates, context)
    traits, accused = read_traits(known.clients, updates.clients), memory.charges > 0
    return {
        "split": charge_split(evidence, signals.split),
        "position": charge_position(evidence, signals.positions, known.positions, accused),
        "crowd": charge_crowd(evidence, signals.crowds, known.crowds, accused),
        "reputation": charge_reputation(evidence, traits),
        "recalled": charge_recalled(evidence) if accused else None,
        "strangers": charge_strangers(evidence, traits),
    }


def judge_charge(evidence: Evidence, charge: Charge | None, infected: Tensor) -> dict[str, float | None]:
    """Return the shares that a charge misses and wrongly names, before and after all traces judge together."""
    if charge is None:
        return {"charged": 0.0}
    judged = judge_together(evidence, charge.suspects).suspects
    found: dict[str, float | None] = {"charged": 1.0}
    for name, suspects in (("alone", charge.suspects), ("joint", judged)):
        found[f"{name}_missed"] = float((~suspects[infected]).double().mean()) if infected.any() else None
        found[f"{name}_wrong"] = float(suspects[~infected].double().mean())
    return found


def order_rightly(scores: Tensor, infected: Tensor) -> float:
    """Return the share of pairs of an infected and an honest row that the scores order correctly."""
    count, total = int(infected.sum()), len(infected)
    deviation = ((total + 1) / (12 * count * (total - count))) ** 0.5
    return 0.5 + deviation * rank_group(scores, infected)


def summarise_charges(charges: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Average over the rounds that have a number."""
    names = dict.fromkeys(name for charge in charges for name in charge)
    known = {name: [charge[name] for charge in charges if charge.get(name) is not None] for name in names}
    return {name: fmean(values) if values else None for name, values in known.items()}


def measure_cell(cell: Cell) -> dict[str, Any]:
    """Measure all ballots in one cell."""
    federation = Federation.build(make_benign_experiment(cell))
    state, watch = build_first_state(federation), Watch(federation.experiment.rounds)
    base = [state.base.clone()]

    def observe(updates: Updates, infected: Sequence[bool], round: int) -> None:
        watch.see(updates, infected, round, base[0])

    for _ in simulate(federation, state=state, observe=observe):
        base[0] = state.base.clone()
    return {"world": cell.world, "attack": cell.attack, **watch.summarise()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    cells = []
    for cell in CELLS:
        cells.append(measure_cell(cell))
        print(json.dumps(cells[-1]), file=sys.stderr, flush=True)
    (RESULTS / "ballots.json").write_text(
        json.dumps({"machine": describe_machine(), "seed": SEED, "cells": cells}, indent=1) + "\n", encoding="utf-8"
    )
