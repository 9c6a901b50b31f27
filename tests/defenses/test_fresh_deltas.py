"""Defenses that promise that nobody else holds the deltas of their verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import DEFENSES, Context, FedAvg, Snowball, SnowballMinus, SnowballPlus, Verdict
from snowball.defenses.base import has_fresh_deltas
from snowball.differences import Differences
from snowball.testing import make_toy_round
from snowball.updates import Updates

FRESH = (FedAvg(), SnowballMinus(), Snowball(grow_after=0), SnowballPlus())


def list_tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested mappings and sequences."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from list_tensors(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from list_tensors(part)


def share_memory(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def make_rounds(rows: int) -> Iterator[Updates]:
    """Make the same updates as a matrix and as differences of models."""
    updates = make_toy_round(rows, seed=rows)
    yield updates
    base = updates.layout.split(torch.zeros(updates.layout.width))
    models = [updates.layout.split(row) for row in updates.values]
    norms = updates.squared_norms.sqrt()
    yield Updates(Differences(base, models, norms, updates.layout), updates.examples, updates.clients, updates.layout)


def test_those_that_promise_fresh_deltas_are_tried_here() -> None:
    assert {defense for defense in DEFENSES.values() if "fresh_deltas" in vars(defense)} == set(map(type, FRESH))
    assert all(map(has_fresh_deltas, FRESH))


@pytest.mark.parametrize("defense", FRESH, ids=lambda defense: type(defense).__name__)
@pytest.mark.parametrize("rows", [1, 3, 9, 20])
def test_nothing_else_shares_the_memory_of_a_fresh_delta(defense: Any, rows: int) -> None:
    for updates in make_rounds(rows):
        base, deltas = torch.randn(updates.layout.width, generator=torch.Generator().manual_seed(1)), []
        context = Context(round=1, base=base)
        for round in (1, 2, 3):
            verdict = defense(updates, replace(context, round=round))
            deltas.append(verdict.delta)
            others = [base, updates.values, *list_tensors(verdict.facts), *list_tensors(verdict.state), *deltas[:-1]]
            assert not any(share_memory(verdict.delta, other) for other in others)
            assert verdict.delta.is_contiguous()
            context = replace(context, state=verdict.state)


def test_a_promise_is_not_inherited() -> None:
    class Remembering(FedAvg):
        """FedAvg that keeps what it returned."""

        def __call__(self, updates: Updates, context: Context) -> Verdict:
            """Average all updates, and keep the average."""
            verdict = super().__call__(updates, context)
            vars(self)["last"] = verdict.delta
            return verdict

    assert not has_fresh_deltas(Remembering())


def test_a_base_is_made_whenever_it_is_read() -> None:
    made = []

    def make() -> Tensor:
        made.append(torch.ones(3))
        return made[-1]

    context = Context(round=1, base=make)
    assert not made
    assert context.base is made[0]
    assert context.base is made[1]
    assert replace(context, round=2).base is made[2]
    row = torch.zeros(3)
    assert Context(round=1, base=row).base is row
    assert Context(round=1).base is None
