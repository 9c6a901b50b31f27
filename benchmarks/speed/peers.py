"""Times each defense on the server, beside FedAvg in the same run; not one that needs a model to run.

One process, one thread. Every measurement starts from rows without Gram matrices. FedAvg is timed again before each
defense, and a defense that keeps a history is timed once it has one.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.inputs.synthetic import SEED, make_layers, make_updates
from benchmarks.measuring.timing import Case, make_case, time_fastest
from snowball.defenses import DEFENSES, Context, Defense, InspectingDefense, Verdict
from snowball.rng import stream
from snowball.updates import Updates

SIZES = ((50, 455_000), (100, 1_000_000))
"""Updates and columns: the paper's MNIST, and twice as many updates of twice the size."""

QUICK_SIZES = ((50, 45_500),)
HIDDEN = 100
"""Columns per layer; the first of the two layers is a tenth of the model."""

SETTINGS: dict[str, dict[str, Any]] = {"snowball": {"clusters": 11}, "snowball-minus": {"clusters": 11}}
"""The paper's number of clusters: only the first round has to find it."""

ROUNDS_BEFORE = {"fldetector": 11, "foolsgold": 1, "fedsurrogate": 1, "snowball-plus": 1}
"""Rounds until a history reaches its full length."""


def make_rows(clients: int, width: int) -> dict[str, Tensor]:
    """Make a round's rows in two layers."""
    first = width // 10 // HIDDEN
    return make_layers(clients, {"first.weight": (first, HIDDEN), "last.weight": (width // HIDDEN - first, HIDDEN)})


def make_context(updates: Updates) -> Context:
    """Make a round's context with everything that a server can have, except a model to try."""
    base = 0.1 * torch.randn(updates.layout.width, generator=stream(SEED, "benchmark", "base"))
    return Context(round=1, rounds=100, base=base, seed=SEED, trusted=updates.mean(torch.ones(len(updates))))


def run_rounds(defense: Defense, updates: Updates, context: Context, rounds: int) -> Context:
    """Run some rounds, and return the context of the next one."""
    for _ in range(rounds):
        context = replace(context, round=context.round + 1, state=defense(updates, context).state)
    return context


def time_defense(name: str, layers: dict[str, Tensor], context: Context, repeats: int) -> Case:
    """Time one defense, and FedAvg just before it."""
    defense = DEFENSES[name](**SETTINGS.get(name, {}))
    now = run_rounds(defense, make_updates(layers), context, ROUNDS_BEFORE.get(name, 0))
    reference_seconds, _ = time_fastest(
        partial(apply_defense, DEFENSES["fedavg"](), now), lambda: make_updates(layers), repeats
    )
    seconds, verdict = time_fastest(partial(apply_defense, defense, now), lambda: make_updates(layers), repeats)
    count, width = len(verdict.elected), len(verdict.delta)
    times = seconds / reference_seconds
    return make_case(f"{name} k{count} d{width}", seconds, reference_seconds, times_fedavg=times)


def apply_defense(defense: Defense, context: Context, updates: Updates) -> Verdict:
    """Apply a defense: the call that is timed."""
    return defense(updates, context)


def run_cases(quick: bool) -> Iterator[Case]:
    """Yield every defense at every size."""
    for clients, width in QUICK_SIZES if quick else SIZES:
        layers = make_rows(clients, width)
        context = make_context(make_updates(layers))
        timed = (name for name in DEFENSES if not isinstance(DEFENSES[name](), InspectingDefense))
        yield from (time_defense(name, layers, context, 1 if quick else 3) for name in timed)
