"""The checks that every defense passes."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snowball.defenses import Context, Defense, InspectingDefense, Verdict
from snowball.defenses.base import explain_schedule
from snowball.errors import MissingExtra
from snowball.rng import stream
from snowball.testing.rounds import ToyModel, make_toy_round
from snowball.updates import Updates

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def check_defense(defense: Defense, examples: int = 20) -> None:
    """Run every check of `CHECKS` on a defense, on rounds that hypothesis generates.

    Args:
        defense: the defense to check.
        examples: the number of rounds to try.
    """
    try:
        from hypothesis import HealthCheck, given, settings
    except ImportError:
        raise MissingExtra("check_defense needs hypothesis: pip install 'hypothesis>=6.100'") from None

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(_rounds())
    def check(updates: Updates) -> None:
        verdicts = run_two_rounds(defense, updates)
        for check_one in CHECKS.values():
            check_one(defense, updates, verdicts)

    check()


def _rounds() -> "SearchStrategy[Updates]":
    """Return a strategy for rounds of one to twelve rows at any scale, some of them equal, some zero, some far away."""
    from hypothesis import strategies as st

    @st.composite
    def made_up(draw: Callable[..., Any]) -> Updates:
        clients = draw(st.integers(1, 12))
        updates = make_toy_round(
            clients,
            infected=draw(st.integers(0, clients)),
            distance=draw(st.sampled_from([0.0, 3.0, 1e3, 1e12])),
            width=draw(st.sampled_from([8, 60])),
            seed=draw(st.integers(0, 2**16)),
            dtype=draw(st.sampled_from([torch.float32, torch.float64])),
        )
        values = updates.values * 10.0 ** draw(st.integers(-6, 6))
        for row, twin in draw(st.lists(st.tuples(*[st.integers(0, clients - 1)] * 2), max_size=3)):
            values[row] = values[twin]
        for row in draw(st.lists(st.integers(0, clients - 1), max_size=2)):
            values[row] = 0
        return updates.replace_values(values)

    return made_up()


def run_two_rounds(defense: Defense, updates: Updates, seed: int = 7, rounds: int = 2) -> list[Verdict]:
    """Judge the same updates in two rounds, the second with the first one's state; the server trusts their mean."""
    base = torch.zeros(updates.layout.width, dtype=updates.dtype)
    context = Context(round=1, rounds=rounds, base=base, seed=seed, trusted=updates.mean(torch.ones(len(updates))))
    context = add_toy_model(defense, context)
    first = defense(updates, context)
    return [first, defense(updates, replace(context, round=2, state=first.state))]


def add_toy_model(defense: Defense, context: Context) -> Context:
    """Return the context with a toy model and samples for it, if the defense runs models on samples."""
    if not isinstance(defense, InspectingDefense):
        return context
    rng = stream(0, "toy samples")
    return replace(context, model=ToyModel(), samples=torch.rand(min(defense.inspected_examples, 20), 3, generator=rng))


def elects_somebody(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that the election is a mask of the rows, with at least one elected unless all rows are zero."""
    for verdict in verdicts:
        assert verdict.elected.dtype == torch.bool, f"elected must be bool, is {verdict.elected.dtype}"
        assert verdict.elected.shape == (len(updates),), f"{len(updates)} rows, elected {verdict.elected.shape}"
        assert verdict.elected.any() or not updates.values.any(), "nobody was elected"


def result_is_finite(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that the delta is a finite row of the updates' width and dtype."""
    for verdict in verdicts:
        assert verdict.delta.shape == (updates.layout.width,), f"delta has shape {tuple(verdict.delta.shape)}"
        assert verdict.delta.dtype == updates.values.dtype, f"{updates.values.dtype} became {verdict.delta.dtype}"
        assert verdict.delta.isfinite().all(), "delta is not finite"


def same_seed_same_verdict(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that all randomness comes from the seed, and that nothing is kept between calls."""
    for once, again in zip(verdicts, run_two_rounds(defense, updates), strict=True):
        _assert_same(once, again)


def total_rounds_are_declared(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that the total number of rounds changes nothing, or that the defense explains its schedule."""
    if not explain_schedule(defense):
        for short, long in zip(verdicts, run_two_rounds(defense, updates, rounds=100), strict=True):
            assert torch.equal(short.elected, long.elected), "more rounds elect others: add a method explain_schedule"
            assert torch.equal(short.delta, long.delta), "more rounds give another row: add a method explain_schedule"


def input_is_untouched(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that updates, base and state stay unchanged."""
    values, examples, base = updates.values.clone(), updates.examples.clone(), torch.ones(updates.layout.width)
    context = add_toy_model(defense, Context(round=1, rounds=2, base=base, trusted=updates.values[0].clone()))
    first = defense(updates, context)
    before = pickle.dumps(first.state)
    defense(updates, replace(context, round=2, state=first.state))
    assert torch.equal(updates.values, values), "the updates were changed"
    assert torch.equal(updates.examples, examples), "the example counts were changed"
    assert (base == 1).all(), "the base was changed"
    assert pickle.dumps(first.state) == before, "the state was changed in place"


def row_order_is_irrelevant(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that the order of the replies changes neither the elected clients nor the resulting row."""
    order = torch.randperm(len(updates), generator=stream(0, "order"))
    moved = Updates(
        updates.values[order], updates.examples[order], tuple(updates.clients[row] for row in order), updates.layout
    )
    for here, there in zip(verdicts, run_two_rounds(defense, moved), strict=True):
        assert torch.equal(here.elected, there.elected), "another row order elects other clients"
        scale = float(updates.values.abs().max())
        torch.testing.assert_close(here.delta, there.delta, rtol=1e-5, atol=1e-6 * scale)


def survives_pickling(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that a pickled copy, as another process gets it, reaches the same verdict."""
    copy = pickle.loads(pickle.dumps(defense))
    for here, there in zip(verdicts, run_two_rounds(copy, updates), strict=True):
        _assert_same(here, there)


def state_is_plain(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that state is nested dicts and lists of tensors, numbers, strings and None, so that runs can be resumed."""
    for verdict in verdicts:
        assert _plain(verdict.state), f"state holds more than tensors and numbers: {verdict.state}"


def one_row_is_elected(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that a single update is elected: there is no other to vote for."""
    alone = Updates(updates.values[:1], updates.examples[:1], updates.clients[:1], updates.layout)
    for verdict in run_two_rounds(defense, alone):
        assert verdict.elected.all() or not alone.values.any(), "the only update was not elected"
        assert verdict.delta.isfinite().all(), "delta is not finite"


def identical_rows_are_harmless(defense: Defense, updates: Updates, verdicts: Sequence[Verdict]) -> None:
    """Check that identical rows, and rows of zeros, give a finite result."""
    for row in (updates.values[:1], torch.zeros_like(updates.values[:1])):
        same = updates.replace_values(row.repeat(len(updates), 1))
        for verdict in run_two_rounds(defense, same):
            assert verdict.elected.any() or not row.any(), "nobody was elected among identical rows"
            assert verdict.delta.isfinite().all(), "delta is not finite"


CHECKS: Mapping[str, Callable[[Defense, Updates, Sequence[Verdict]], None]] = {
    check.__name__: check
    for check in (
        elects_somebody,
        result_is_finite,
        same_seed_same_verdict,
        total_rounds_are_declared,
        input_is_untouched,
        row_order_is_irrelevant,
        survives_pickling,
        state_is_plain,
        one_row_is_elected,
        identical_rows_are_harmless,
    )
}
"""Each check takes a defense, a round, and what `run_two_rounds` made of it, which most checks compare with."""


def _assert_same(one: Verdict, other: Verdict) -> None:
    assert torch.equal(one.delta, other.delta), "the same seed gave another row"
    assert torch.equal(one.elected, other.elected), "the same seed elected others"
    facts = [
        {name: fact for name, fact in verdict.facts.items() if not name.startswith("seconds.")}
        for verdict in (one, other)
    ]
    assert facts[0].keys() == facts[1].keys(), "the same seed gave other facts"
    for name, fact in facts[0].items():
        other_fact = facts[1][name]
        if isinstance(fact, str) or isinstance(other_fact, str):
            assert fact == other_fact, f"the same seed gave another {name}"
        else:
            torch.testing.assert_close(
                torch.as_tensor(fact), torch.as_tensor(other_fact), rtol=0, atol=0, equal_nan=True
            )


def _plain(state: Any) -> bool:
    if isinstance(state, Mapping):
        return all(isinstance(key, str) and _plain(value) for key, value in state.items())
    if isinstance(state, list | tuple):
        return all(map(_plain, state))
    return state is None or isinstance(state, Tensor | bool | int | float | str)
