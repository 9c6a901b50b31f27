"""Hostile rounds through every defense, on the server and in a guard: only a SnowballError, and a finite model."""

import random
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import DEFENSES, Context, Defense, InspectingDefense, LocalDefense, TrustingDefense
from snowball.errors import SnowballError
from snowball.guard import Guard, Reply
from snowball.layout import Layout
from snowball.rng import stream
from snowball.server import Received, judge_round
from snowball.testing.defenses import add_toy_model

MODEL = {"first.weight": torch.linspace(-1, 1, 24).view(6, 4), "last.weight": torch.linspace(1, -1, 60).view(10, 6)}
LAYOUT = Layout.from_tensors(MODEL)
BASE = LAYOUT.flatten(MODEL)
NUMBERS = [torch.nan, torch.inf, -torch.inf, 1e38, -3.4e38, 1e-45, 1e-38, 0.0, 1e15]


def make_hostile_rows(seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows and example counts of a round in which up to half of the clients are hostile, or all of one."""
    rng = random.Random(seed)
    count = rng.choice([1, 1, 2, 3, 5, 12, 20])
    rows = 0.05 * torch.randn(count, LAYOUT.width, generator=stream(seed, "hostile"))
    examples = torch.tensor([float(rng.randint(1, 100)) for _ in range(count)], dtype=torch.float64)
    for row in rng.sample(range(count), max(1, count // 2) if rng.random() < 0.8 else count):
        kind = rng.choice(["one", "all", "copy", "scale", "examples"])
        if kind == "one":
            rows[row, rng.randrange(LAYOUT.width)] = rng.choice(NUMBERS)
        elif kind == "all":
            rows[row] = rng.choice(NUMBERS)
        elif kind == "copy":
            rows[row] = rows[rng.randrange(count)]
        elif kind == "scale":
            rows[row] *= 10.0 ** rng.randint(-45, 38)
        else:
            examples[row] = rng.choice([1e-300, 1e300, 2.0**53, 2.0**60])
    return rows, examples


def judge_on_server(defense: Defense, seeds: range) -> int:
    """Judge rounds in a row as the simulator does; return how many changed the model."""
    state: Any = None
    base, changed = BASE, 0
    for number, seed in enumerate(seeds, start=1):
        rows, examples = make_hostile_rows(seed)
        clients = tuple(f"c{row:02}" for row in range(len(rows)))
        received = Received(
            values=rows, examples=examples, clients=clients, layout=LAYOUT, buffers=[{} for _ in clients]
        )
        trusted = 0.05 * torch.randn(LAYOUT.width, generator=stream(seed, "trusted"))
        context = Context(round=number, rounds=len(seeds), base=base, state=state, trusted=trusted)
        context = add_toy_model(defense, context)
        with suppress(SnowballError):
            outcome = judge_round(received, defense, context, {})
            assert outcome.base.isfinite().all()
            changed += outcome.kept is None
            state = outcome.state  # the model starts again, so that huge numbers do not end the test
    return changed


def judge_in_guard(defense: Defense, seeds: range) -> int:
    """Judge rounds in a row in a guard; return how many changed the model."""
    guard, changed = Guard(defense, seed=1), 0
    for seed in seeds:
        rows, examples = make_hostile_rows(seed)
        replies = [
            Reply(f"c{row:02}", count, LAYOUT.split(BASE + rows[row])) for row, count in enumerate(examples.tolist())
        ]
        judgement = guard(MODEL, replies)
        assert all(tensor.isfinite().all() for tensor in judgement.tensors.values())
        assert judgement.kept == (judgement.entry["reason"] is not None and not judgement.averaged)
        changed += not judgement.kept
    return changed


def drive_defense(name: str, seeds: range) -> tuple[int, int]:
    """Drive a defense through hostile rounds in both ways; a guard takes none that trains or is told the truth."""
    defense = DEFENSES[name]()
    guarded = name != "ideal" and not isinstance(defense, InspectingDefense | LocalDefense | TrustingDefense)
    return judge_on_server(defense, seeds), judge_in_guard(defense, seeds) if guarded else len(seeds)


@pytest.mark.parametrize("name", DEFENSES)
def test_hostile_rounds_raise_nothing_and_leave_the_model_finite(name: str) -> None:
    drive_defense(name, range(5))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFENSES)
def test_hundreds_of_hostile_rounds_raise_nothing_and_leave_the_model_finite(name: str) -> None:
    changed = drive_defense(name, range(300))
    assert min(changed) > 30, f"of 300 rounds, {changed} changed the model on the server and in a guard"
