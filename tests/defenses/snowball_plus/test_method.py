from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, SnowballPlus, Verdict
from snowball.defenses.base import State
from snowball.defenses.snowball_plus import method
from snowball.defenses.snowball_plus.evidence import ALL, HIDDEN, gather_evidence
from snowball.defenses.snowball_plus.joint import judge_together
from snowball.defenses.snowball_plus.memory import Memory, recall_suspects
from snowball.defenses.snowball_plus.method import FULLEST_CLASS_ROUNDS, learn_suspects
from snowball.errors import SettingError
from snowball.pytree import pack
from snowball.rng import stream
from snowball.testing import check_defense
from snowball.updates import Layout, Updates

ROUNDS = 8
LEANING = {"infected": 15, "together": 0.0, "undo": 0.0, "lean": 0.1}
"""A group that nothing but its label gives away."""


def run(
    make_round: Callable[..., Any], defense: SnowballPlus | None = None, start: int = 0, **setup: Any
) -> list[tuple[Any, Verdict]]:
    """Some rounds with their verdicts."""
    results: list[tuple[Any, Verdict]] = []
    state: State | None = None
    for round in range(1, ROUNDS + 1):
        planted = make_round(start + round, **setup)
        verdict = (defense or SnowballPlus())(planted.updates, Context(round, ROUNDS, planted.base, state=state))
        results.append((planted, verdict))
        state = verdict.state
    return results


def average_plainly(updates: Updates, elected: Tensor) -> Tensor:
    """The mean of the elected by their examples, none longer than their median length, in plain NumPy."""
    rows = updates.values[elected].double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows * np.minimum(1, np.median(lengths) / lengths)[:, None]
    return torch.tensor(np.average(rows, axis=0, weights=updates.examples[elected].numpy())).float()


@pytest.mark.parametrize("start", [0, 100, 200])
@pytest.mark.parametrize("fresh", [False, True])
def test_the_infected_are_accused_and_the_model_stays_with_the_honest(
    make_round: Callable[..., Any], start: int, fresh: bool
) -> None:
    for planted, verdict in run(make_round, start=start, infected=15, fresh=fresh):
        assert torch.equal(verdict.elected, ~planted.infected)
        honest = planted.updates.values[~planted.infected].mean(0)
        everybody = planted.updates.values.mean(0)
        assert (verdict.delta - honest).norm() < 0.5 * (everybody - honest).norm()
        torch.testing.assert_close(verdict.delta, average_plainly(planted.updates, ~planted.infected))


def test_a_weaker_attack_is_found_from_what_earlier_rounds_left_without_client_ids(
    make_round: Callable[..., Any],
) -> None:
    setup = {"infected": 15, "together": 0.43, "undo": 0.3, "fresh": True}
    results = run(make_round, **setup)
    assert results[0][1].elected.all()
    for planted, verdict in results[1:]:
        assert int((verdict.elected == planted.infected).sum()) <= 2
        alone = SnowballPlus()(planted.updates, Context(1, base=planted.base))
        assert alone.elected.all() or "clarity.split" in alone.facts
    assert any("clarity.recalled" in verdict.facts for _, verdict in results)


@pytest.mark.parametrize("start", [0, 100, 200, 300])
@pytest.mark.parametrize("rows", [8, 50])
def test_nobody_is_accused_where_nobody_attacks(make_round: Callable[..., Any], start: int, rows: int) -> None:
    for _, verdict in run(make_round, start=start, rows=rows):
        assert verdict.elected.all()
        assert set(verdict.facts) == {"seconds.ballots"}
        assert verdict.state is not None
        assert verdict.state["charges"] == 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_too_few_to_tell_apart_are_all_averaged(make_round: Callable[..., Any], rows: int) -> None:
    state = run(make_round)[-1][1].state
    updates = make_round(0, rows=rows, infected=1, together=9.0).updates
    verdict = SnowballPlus(suspect_crowds=True)(updates, Context(9, state=state))
    assert verdict.elected.all()
    assert not verdict.facts
    torch.testing.assert_close(verdict.delta, average_plainly(updates, verdict.elected))
    assert pack(verdict.state) == pack(state)  # nor is anything learnt


@pytest.mark.parametrize(
    ("rows", "round", "medians"),
    [(4, 1, True), (15, 1, True), (15, 40, True), (16, 1, False)],
)
def test_few_rows_are_averaged_by_medians_while_nobody_is_accused(
    make_round: Callable[..., Any], rows: int, round: int, medians: bool
) -> None:
    updates = make_round(0, rows=rows).updates
    verdict = SnowballPlus()(updates, Context(round))
    columns = torch.tensor(np.median(updates.values.double().numpy(), axis=0)).float()
    expected = columns if medians else average_plainly(updates, verdict.elected)
    assert verdict.elected.all()
    torch.testing.assert_close(verdict.delta, expected)


def test_a_charge_ends_the_medians(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, rows=8, infected=1)[0]
    assert torch.equal(verdict.elected, ~planted.infected)
    torch.testing.assert_close(verdict.delta, average_plainly(planted.updates, verdict.elected))


def test_one_huge_update_moves_the_model_by_no_more_than_a_median_length(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    updates = replace(planted.updates, examples=torch.ones(50, dtype=torch.float64))
    values = updates.values.clone()
    values[3] *= 1e6
    huge = SnowballPlus()(replace(updates, values=values), Context(1, base=planted.base))
    usual = SnowballPlus()(updates, Context(1, base=planted.base))
    length = float(updates.values.norm(dim=1).median())
    assert huge.elected.all()
    assert float((huge.delta - usual.delta).norm()) < length / 50
    assert float(huge.delta.norm()) < length


def test_the_fullest_class_is_left_out_in_the_first_rounds_only(
    make_round: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = {"infected": 10, "together": 0.0, "undo": 0.0, "lean": 0.04}
    monkeypatch.setattr(method, "FULLEST_CLASS_ROUNDS", 2)
    monkeypatch.setattr(method, "charge_crowd", lambda *_: None)  # which is another matter
    plain, shunning = run(make_round, **quiet), run(make_round, SnowballPlus(suspect_crowds=True), **quiet)
    for round, ((planted, without), (_, verdict)) in enumerate(zip(plain, shunning, strict=True), start=1):
        shunned = round <= 2 and "charge" not in without.facts
        assert ("clarity.fullest" in verdict.facts) == shunned
        if shunned:
            left_out = int((~verdict.elected).sum())
            assert 1 <= left_out <= 27
            assert str(verdict.facts["charge"]).endswith(f"with {left_out - 1} others")
            assert "suspicion" not in verdict.facts
            torch.testing.assert_close(verdict.delta, average_plainly(planted.updates, verdict.elected))
        else:
            assert torch.equal(verdict.elected, without.elected)
        assert pack(verdict.state) == pack(without.state)  # what is shunned is not remembered as accused
    assert "clarity.fullest" in shunning[0][1].facts
    assert "clarity.fullest" in shunning[1][1].facts


def test_a_charge_goes_before_leaving_out_the_fullest_class(make_round: Callable[..., Any]) -> None:
    assert ROUNDS <= FULLEST_CLASS_ROUNDS
    for planted, verdict in run(make_round, SnowballPlus(suspect_crowds=True), infected=15):
        assert "clarity.split" in verdict.facts
        assert torch.equal(verdict.elected, ~planted.infected)


def test_the_more_suspicious_half_of_the_accused_is_remembered(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=16)
    evidence, suspects = gather_evidence(planted.updates, planted.base, None), planted.infected_by_client
    judgement = judge_together(evidence, suspects)
    memory = learn_suspects(Memory(None, None, 2, {}), planted.updates, evidence, judgement, None)
    worst = torch.zeros(50, dtype=torch.bool)
    worst[judgement.scores.topk(8).indices] = True
    expected = recall_suspects(None, planted.updates, evidence, worst)
    assert memory.recalled is not None
    assert memory.charges == 3
    torch.testing.assert_close(memory.recalled.directions, expected.directions)


def test_settings_that_no_round_can_satisfy_are_refused() -> None:
    with pytest.raises(SettingError, match="remember must be 1 client or more, got 0"):
        SnowballPlus(remember=0)


def test_the_infected_are_found_without_a_model_to_compare_with(make_round: Callable[..., Any]) -> None:
    state: State | None = None
    for round in range(1, 5):
        planted = make_round(round, infected=15)
        verdict = SnowballPlus()(planted.updates, Context(round, state=state))
        assert torch.equal(verdict.elected, ~planted.infected)
        state = verdict.state


@pytest.mark.parametrize(
    "layout",
    [
        Layout(("only.weight",), ((10, 12),)),
        Layout(("only.weight", "only.bias"), ((1, 120), (1,))),
        Layout(("scale", "shift"), ((60,), (60,))),
        Layout(("scale", "last"), ((120,), (3,))),
        Layout(("scale", "temperature"), ((120,), ())),
        Layout(("hidden.weight", "last.weight"), ((12, 10), (1, 1))),
    ],
    ids=["one matrix", "one output", "no matrix", "no matrix, few classes", "a number last", "one weight last"],
)
@pytest.mark.parametrize("rows", [8, 50])
def test_models_with_few_layers_are_judged_too(layout: Layout, rows: int) -> None:
    state: State | None = None
    for round in range(1, 5):
        rng = stream(round, "few layers")
        values = torch.randn(rows, layout.width, generator=rng)
        infected = torch.arange(rows) < (15 if rows > 15 else 0)
        values[infected] += 1
        updates = Updates(values, torch.ones(rows), tuple(f"{row:02}" for row in range(rows)), layout)
        verdict = SnowballPlus()(updates, Context(round, base=-torch.ones(layout.width), state=state))
        assert torch.equal(verdict.elected, ~infected)
        assert verdict.delta.isfinite().all()
        state = verdict.state


def test_the_sign_of_a_single_number_splits_nobody() -> None:
    for seed in range(5):
        values = torch.randn(50, 1, 1, generator=stream(seed))
        assert SnowballPlus()(Updates.from_layers({"w": values}), Context(1)).elected.all()


def test_facts_say_what_a_split_has_in_common(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, infected=15)[0]
    words, separation = str(verdict.facts["charge"]).rsplit(" ", 1)
    view = words.removeprefix("moves with 14 others in ").removesuffix(", separation")
    assert view in ("conv.weight", "hidden.weight", "last.weight", HIDDEN, ALL)
    assert float(verdict.facts["clarity.split"]) == pytest.approx(float(separation) + 5.5572, abs=0.06)
    suspicion = torch.as_tensor(verdict.facts["suspicion"])
    assert suspicion.shape == (50,)
    assert suspicion[planted.infected].min() > suspicion[~planted.infected].max()  # by row, as they arrived
    assert float(verdict.facts["separation"]) > 4
    assert float(verdict.facts["seconds.ballots"]) > 0


def test_facts_say_which_class_a_crowd_leans_to(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, SnowballPlus(suspect_crowds=True), **LEANING)[-1]
    leaning = str(verdict.facts["charge"]).removeprefix("leans to class 7 with ").removesuffix(" others")
    assert 14 <= int(leaning) <= 27
    assert float(verdict.facts["clarity.crowd"]) >= 1.5
    assert not (verdict.elected & planted.infected).any()
    assert int((~verdict.elected & ~planted.infected).sum()) <= 5


def test_facts_name_strangers(make_round: Callable[..., Any]) -> None:
    _, verdict = run(make_round, rows=8, infected=1)[-1]
    assert verdict.facts["charge"] == "deviates in length, direction and rewired inputs"
    assert float(verdict.facts["clarity.strangers"]) >= 6.5


def test_nobody_is_accused_of_pointing_as_the_accused_before_anybody_was(make_round: Callable[..., Any]) -> None:
    planted = make_round(4, infected=15, together=0.4, undo=0.3)
    state = run(make_round, infected=15)[-1][1].state
    assert state is not None
    accused, nobody = (
        SnowballPlus()(planted.updates, Context(9, base=planted.base, state={**state, "charges": charges}))
        for charges in (8, 0)
    )
    assert "clarity.recalled" in accused.facts
    assert "clarity.recalled" not in nobody.facts


def test_charges_are_counted(make_round: Callable[..., Any]) -> None:
    for round, (_, verdict) in enumerate(run(make_round, infected=15), start=1):
        assert verdict.state is not None
        assert verdict.state["charges"] == round


def test_the_order_of_arrival_and_claimed_examples_accuse_nobody_else(make_round: Callable[..., Any]) -> None:
    results = run(make_round, infected=15, together=0.4, undo=0.3, lean=0.05)
    state: State | None = None
    order = torch.randperm(50, generator=stream(0))
    for round, (planted, verdict) in enumerate(results, start=1):
        updates = planted.updates
        clients = tuple(updates.clients[row] for row in order)
        moved = Updates(updates.values[order], updates.examples.flip(0), clients, updates.layout)
        other = SnowballPlus()(moved, Context(round, ROUNDS, planted.base, state=state))
        assert torch.equal(other.elected, verdict.elected[order])
        assert pack(other.state) == pack(verdict.state)
        state = other.state


def test_snowball_plus_passes_every_check_with_shunning() -> None:
    check_defense(SnowballPlus(suspect_crowds=True, remember=3), examples=10)
