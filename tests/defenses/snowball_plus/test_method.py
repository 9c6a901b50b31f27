from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, SnowballPlus, Verdict
from snowball.defenses.base import State
from snowball.defenses.build import make_defense
from snowball.defenses.snowball_plus.ballots import (
    CAUTIOUS_ROUNDS,
    CROWD_LEAD,
    MAX_CHARGED_SHARE,
    MIN_SPLIT_ROWS,
    REPUTATION,
    Charge,
    weigh_by_crowds,
)
from snowball.defenses.snowball_plus.evidence import ALL, HIDDEN, gather_evidence
from snowball.defenses.snowball_plus.few import STRANGENESS, compute_length_factors, weigh_clients
from snowball.defenses.snowball_plus.joint import judge_together
from snowball.defenses.snowball_plus.memory import Memory, read_traits, recall_suspects, update_clients
from snowball.defenses.snowball_plus.method import Ballot, join_suspects, learn_suspects
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.rng import stream
from snowball.serialization import pack
from snowball.testing import check_defense
from snowball.updates import Updates

ROUNDS = 8
LEANING = {"infected": 15, "together": 0.0, "undo": 0.0, "lean": 0.1, "labels": 0.2}
"""A group that nothing but its label gives away, and that its members do not raise it on the same features."""


def run(
    make_round: Callable[..., Any], defense: SnowballPlus | None = None, start: int = 0, **setup: Any
) -> list[tuple[Any, Verdict]]:
    """Some rounds with their verdicts."""
    results: list[tuple[Any, Verdict]] = []
    state: State | None = None
    for round in range(1, ROUNDS + 1):
        planted = make_round(start + round, **setup)
        verdict = (defense or SnowballPlus())(
            planted.updates, Context(round=round, rounds=ROUNDS, base=planted.base, state=state)
        )
        results.append((planted, verdict))
        state = verdict.state
    return results


def average_plainly(updates: Updates, elected: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of the elected by examples and weights, none longer than their median length, in plain NumPy."""
    rows = updates.values[elected].double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows * np.minimum(1, np.median(lengths) / lengths)[:, None]
    heavy = updates.examples if weights is None else updates.examples * weights
    return torch.tensor(np.average(rows, axis=0, weights=heavy[elected].numpy())).float()


def average_few_plainly(updates: Updates, verdict: Verdict) -> Tensor:
    """The mean of the elected by examples and trust, none longer than is usual for its size, in plain NumPy."""
    assert verdict.state is not None
    traits = read_traits(verdict.state["clients"], updates.clients)
    weights = (updates.examples * weigh_clients(traits) * verdict.elected).numpy()
    rows = updates.values.double()
    factors = compute_length_factors(rows.norm(dim=1), updates.examples, verdict.elected)
    rows = (rows * factors[:, None]).numpy()
    return torch.tensor(np.average(rows, axis=0, weights=weights)).float()


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
        alone = SnowballPlus()(planted.updates, Context(round=1, base=planted.base))
        assert alone.elected.all() or "clarity.split" in alone.facts
    assert any("clarity.recalled" in verdict.facts for _, verdict in results)


@pytest.mark.parametrize("start", [0, 100, 200, 300])
@pytest.mark.parametrize("rows", [8, 50])
def test_nobody_is_accused_where_nobody_attacks(make_round: Callable[..., Any], start: int, rows: int) -> None:
    for _, verdict in run(make_round, start=start, rows=rows):
        assert verdict.elected.all()
        assert "charge" not in verdict.facts
        assert 0 <= verdict.facts["clarity"] < 1
        assert verdict.state is not None
        assert verdict.state["charges"] == 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_too_few_to_tell_apart_are_all_averaged(make_round: Callable[..., Any], rows: int) -> None:
    state = run(make_round)[-1][1].state
    updates = make_round(0, rows=rows, infected=1, together=9.0).updates
    verdict = SnowballPlus()(updates, Context(round=9, state=state))
    assert verdict.elected.all()
    assert set(verdict.facts) == {"shares"}
    torch.testing.assert_close(verdict.delta, average_plainly(updates, verdict.elected))
    assert pack(verdict.state) == pack(state)  # nor is anything learnt


@pytest.mark.parametrize(
    ("rows", "round", "medians"),
    [
        (4, 1, True),
        (MIN_SPLIT_ROWS - 1, 1, True),
        (MIN_SPLIT_ROWS - 1, CAUTIOUS_ROUNDS, True),
        (MIN_SPLIT_ROWS, CAUTIOUS_ROUNDS + 1, False),
    ],
)
def test_few_rows_are_averaged_by_medians_at_first(
    make_round: Callable[..., Any], rows: int, round: int, medians: bool
) -> None:
    updates = make_round(0, rows=rows).updates
    verdict = SnowballPlus()(updates, Context(round=round))
    columns = torch.tensor(np.median(updates.values.double().numpy(), axis=0)).float()
    expected = columns if medians else average_plainly(updates, verdict.elected)
    assert verdict.elected.all()
    torch.testing.assert_close(verdict.delta, expected)


def test_a_charge_ends_the_medians(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, rows=8, infected=1)[1]
    assert torch.equal(verdict.elected, ~planted.infected)
    torch.testing.assert_close(verdict.delta, average_few_plainly(planted.updates, verdict))


@pytest.mark.parametrize("infected", [0, 1])
def test_few_rows_are_averaged_by_examples_and_trust_later(make_round: Callable[..., Any], infected: int) -> None:
    for planted, verdict in run(make_round, rows=8, infected=infected)[CAUTIOUS_ROUNDS:]:
        torch.testing.assert_close(verdict.delta, average_few_plainly(planted.updates, verdict))


def test_one_huge_update_moves_the_model_by_no_more_than_a_median_length(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    updates = Updates(planted.updates.values, torch.ones(50), planted.updates.clients, planted.updates.layout)
    values = updates.values.clone()
    values[3] *= 1e6
    huge = SnowballPlus()(updates.replace_values(values), Context(round=1, base=planted.base))
    usual = SnowballPlus()(updates, Context(round=1, base=planted.base))
    length = float(updates.values.norm(dim=1).median())
    assert huge.elected.all()
    assert float((huge.delta - usual.delta).norm()) < length / 50
    assert float(huge.delta.norm()) < length


def test_who_leans_to_a_suspect_class_weighs_less_in_the_first_rounds(make_round: Callable[..., Any]) -> None:
    cautious, without = 0, SnowballPlus(without=("split",))
    for round, (planted, verdict) in enumerate(run(make_round, without, **LEANING), start=1):
        if "charge" in verdict.facts:
            continue
        assert verdict.elected.all()
        assert verdict.state is not None
        updates = planted.updates
        weights = weigh_by_crowds(gather_evidence(updates, planted.base, None), verdict.state["crowds"], round, False)
        torch.testing.assert_close(verdict.delta, average_plainly(updates, verdict.elected, weights))
        if round <= CAUTIOUS_ROUNDS:
            assert weights[planted.infected].mean() < weights[~planted.infected].mean()
            cautious += 1
        else:
            assert (weights == 1).all()
    assert cautious > 0


def test_without_the_crowd_all_weigh_alike(make_round: Callable[..., Any]) -> None:
    planted = make_round(1, **LEANING)
    plain, other = (
        SnowballPlus(without=without)(planted.updates, Context(round=1, base=planted.base)).delta
        for without in (("split", "crowd"), ("split",))
    )
    expected = average_plainly(planted.updates, torch.ones(50, dtype=torch.bool))
    torch.testing.assert_close(plain, expected)
    assert not torch.allclose(other, expected, rtol=1e-3, atol=0)


def test_who_rewires_a_leading_position_weighs_less_in_a_round_without_a_charge(
    make_image_round: Callable[..., Any],
) -> None:
    planted = make_image_round(1, infected=12, rewired=1.0)
    context = Context(round=1, base=planted.base)
    others = ("split", "crowd")
    weighed, equal = (
        SnowballPlus(without=without)(planted.updates, context) for without in (others, (*others, "position"))
    )
    assert "charge" not in weighed.facts
    shares = weighed.facts["shares"] / equal.facts["shares"]
    assert shares[planted.infected].max() < shares[~planted.infected].median()
    assert weighed.elected.all()


def charge_rows(ballot: str, start: int, stop: int) -> Charge:
    """A charge of some of 20 rows."""
    rows = torch.arange(20)
    return Charge(ballot, (rows >= start) & (rows < stop), 1.0, "", 1.0)


def test_charges_are_joined_unless_they_are_too_many(make_round: Callable[..., Any]) -> None:
    most, evidence = int(MAX_CHARGED_SHARE * 20), gather_evidence(make_round(0, rows=20).updates, None, None)
    few, others = charge_rows("split", 0, 4), charge_rows("crowd", 3, 7)
    assert join_suspects(evidence, [few]).tolist() == [row < 4 for row in range(20)]
    assert join_suspects(evidence, [few, others]).tolist() == [row < 7 for row in range(20)]
    assert int(join_suspects(evidence, [few, charge_rows("crowd", 4, most)]).sum()) == most
    assert torch.equal(join_suspects(evidence, [few, charge_rows("crowd", 4, most + 1)]), few.suspects)
    assert torch.equal(join_suspects(evidence, [few, others, charge_rows("position", 7, 20)]), few.suspects)
    assert not join_suspects(evidence, []).any()


def test_of_too_many_suspects_those_who_point_as_earlier_ones_remain(make_round: Callable[..., Any]) -> None:
    evidence = gather_evidence(make_round(0, rows=20).updates, None, None)
    wrong, right = charge_rows("position", 0, 6), charge_rows("crowd", 6, 14)
    recalling = replace(evidence, recalled_directions={"fc": right.suspects.double()})
    assert torch.equal(join_suspects(recalling, [wrong, right]), right.suspects)
    assert torch.equal(join_suspects(evidence, [wrong, right]), wrong.suspects)


def test_charges_of_several_ballots_are_all_named(make_image_round: Callable[..., Any]) -> None:
    planted = make_image_round(1, infected=12, rewired=2.5)
    values = planted.updates.values.clone()
    values[planted.infected, planted.updates.layout.columns["conv.weight"]] += 0.02
    updates = planted.updates.replace_values(values)
    verdict = SnowballPlus()(updates, Context(round=1, base=planted.base))
    assert {"clarity.split", "clarity.position"} <= verdict.facts.keys()
    split, position = str(verdict.facts["charge"]).split("; ")
    assert split.startswith("moves with 11 others in ")
    assert position.startswith("rewires position 5 with 11 others, separation ")
    assert torch.equal(verdict.elected, ~planted.infected)
    alone = SnowballPlus(without=("split",))(updates, Context(round=1, base=planted.base))
    assert alone.facts["charge"] == position


@pytest.mark.parametrize("start", [0, 100])
def test_those_who_rewire_one_position_are_accused(make_image_round: Callable[..., Any], start: int) -> None:
    for planted, verdict in run(make_image_round, start=start, infected=12, rewired=2.5):
        assert "clarity.position" in verdict.facts
        assert torch.equal(verdict.elected, ~planted.infected)


@pytest.mark.parametrize("start", [0, 100, 200])
def test_nobody_is_accused_of_rewiring_a_position_in_noise(make_image_round: Callable[..., Any], start: int) -> None:
    for _, verdict in run(make_image_round, start=start):
        assert verdict.elected.all()


SCENES: dict[Ballot, dict[str, Any]] = {
    "split": {"infected": 15},
    "position": {"infected": 12, "rewired": 2.5},
    "crowd": LEANING,
    "recalled": {"infected": 15, "together": 0.43, "undo": 0.3, "fresh": True},
    "strangers": {"rows": 8, "infected": 1},
}
"""Rounds in which each ballot charges."""


@pytest.mark.parametrize("ballot", SCENES)
def test_a_ballot_that_is_not_held_charges_nobody(
    make_round: Callable[..., Any], make_image_round: Callable[..., Any], ballot: Ballot
) -> None:
    make = make_image_round if ballot == "position" else make_round
    held = run(make, SnowballPlus(), **SCENES[ballot])
    left_out = run(make, SnowballPlus(without=(ballot,)), **SCENES[ballot])
    assert any(f"clarity.{ballot}" in verdict.facts for _, verdict in held)
    assert not any(f"clarity.{ballot}" in verdict.facts for _, verdict in left_out)


def test_without_any_ballot_nobody_is_ever_accused(make_round: Callable[..., Any]) -> None:
    nothing = SnowballPlus(without=get_args(Ballot))
    for planted, verdict in run(make_round, nothing, infected=15, lean=0.1):
        assert verdict.elected.all()
        assert set(verdict.facts) == {"seconds.ballots", "clarity", "shares"}
        torch.testing.assert_close(verdict.delta, average_plainly(planted.updates, verdict.elected))


def test_every_ballot_that_can_charge_can_be_left_out() -> None:
    assert set(SCENES) | {"reputation"} == set(get_args(Ballot))


def test_a_ballot_that_does_not_exist_is_refused_in_one_sentence(call: Callable[..., tuple[int, str, str]]) -> None:
    with pytest.raises(SettingError, match=r'defense\.without = "crowdz" should be .*crowd'):
        make_defense("defense", "snowball-plus", {"without": ["crowdz"]})
    assert make_defense("defense", "snowball-plus", {"without": ["crowd", "split"]}) == SnowballPlus(("crowd", "split"))
    settings = ("--set", "defense.name=snowball-plus", "--set", 'defense.without=["crowdz"]')
    code, output, errors = call("run", "demo", *settings)
    assert (code, output) == (2, "")
    assert errors.count("\n") == 1
    assert 'defense.without = "crowdz"' in errors


def test_a_ballot_that_does_not_exist_is_refused_where_no_settings_are_read() -> None:
    with pytest.raises(SettingError, match="crowdz"):
        SnowballPlus(without=("crowdz",))  # type: ignore[arg-type]


def test_those_accused_in_most_of_their_rounds_are_left_out_of_one_without_a_charge(
    make_round: Callable[..., Any],
) -> None:
    results = run(make_round, infected=15)
    state, quiet = results[-1][1].state, make_round(99)  # in which nobody can be told from the others
    assert state is not None
    infected = {
        client for client, marked in zip(results[-1][0].updates.clients, results[-1][0].infected, strict=True) if marked
    }
    verdict = SnowballPlus()(quiet.updates, Context(round=ROUNDS + 1, base=quiet.base, state=state))
    left_out = {client for client, kept in zip(quiet.updates.clients, verdict.elected, strict=True) if not kept}
    assert left_out == infected
    assert verdict.facts["charge"] == "was accused in most of its recent rounds"
    assert float(verdict.facts["clarity.reputation"]) >= REPUTATION
    assert "suspicion" not in verdict.facts
    assert verdict.state is not None
    assert verdict.state["charges"] == state["charges"]  # a reputation does not make itself worse
    torch.testing.assert_close(verdict.delta, average_plainly(quiet.updates, verdict.elected))
    without = SnowballPlus(without=("reputation",))
    assert "clarity.reputation" not in without(quiet.updates, Context(round=9, base=quiet.base, state=state)).facts


def test_a_reputation_fades(make_round: Callable[..., Any]) -> None:
    state = run(make_round, infected=15)[-1][1].state
    held = []
    for round in range(ROUNDS + 1, ROUNDS + 13):
        quiet = make_round(1000 + round)
        verdict = SnowballPlus(without=("recalled",))(quiet.updates, Context(round=round, base=quiet.base, state=state))
        held.append("clarity.reputation" in verdict.facts)
        state = verdict.state
    assert held[0]
    assert held == sorted(held, reverse=True)
    assert not held[-1]


def test_the_more_suspicious_half_of_the_accused_is_remembered(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=16)
    evidence, suspects = gather_evidence(planted.updates, planted.base, None), planted.infected
    judgement = judge_together(evidence, suspects)
    names = sorted(planted.updates.clients)
    clients = update_clients({}, names, torch.zeros(50, dtype=torch.float64), 1)
    memory = learn_suspects(Memory(None, None, None, 2, clients), planted.updates, evidence, judgement, None)
    worst = torch.zeros(50, dtype=torch.bool)
    worst[judgement.scores.topk(8).indices] = True
    expected = recall_suspects(None, planted.updates, evidence, worst)
    assert memory.recalled is not None
    assert memory.charges == 3
    torch.testing.assert_close(memory.recalled.directions, expected.directions)
    assert torch.equal(read_traits(memory.clients, names)[:, 2] > 0, judgement.suspects)  # all of them are counted
    assert (read_traits(memory.clients, names)[:, 3] == 1).all()


def test_settings_that_no_round_can_satisfy_are_refused() -> None:
    with pytest.raises(SettingError, match="remember must be 1 client or more, got 0"):
        SnowballPlus(remember=0)


def test_the_infected_are_found_without_a_model_to_compare_with(make_round: Callable[..., Any]) -> None:
    state: State | None = None
    for round in range(1, 5):
        planted = make_round(round, infected=15)
        verdict = SnowballPlus()(planted.updates, Context(round=round, state=state))
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
        verdict = SnowballPlus()(updates, Context(round=round, base=-torch.ones(layout.width), state=state))
        assert torch.equal(verdict.elected, ~infected)
        assert verdict.delta.isfinite().all()
        state = verdict.state


def test_the_sign_of_a_single_number_splits_nobody() -> None:
    for seed in range(5):
        values = torch.randn(50, 1, 1, generator=stream(seed))
        assert SnowballPlus()(Updates.from_layers({"w": values}), Context(round=1)).elected.all()


def test_facts_say_what_a_split_has_in_common(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, infected=15)[0]
    words, separation = str(verdict.facts["charge"]).rsplit(" ", 1)
    view = words.removeprefix("moves with 14 others in ").removesuffix(", separation")
    assert view in ("conv.weight", "hidden.weight", "last.weight", HIDDEN, ALL)
    assert float(verdict.facts["clarity.split"]) == pytest.approx(float(separation) + 5.5572, abs=0.06)
    suspicion = torch.as_tensor(verdict.facts["suspicion"])
    assert suspicion.shape == (50,)
    assert suspicion[planted.infected].min() > suspicion[~planted.infected].max()
    assert float(verdict.facts["separation"]) > 4
    assert float(verdict.facts["seconds.ballots"]) > 0


def test_facts_say_which_class_a_crowd_leans_to(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, SnowballPlus(without=("split",)), **LEANING)[-1]
    leaning = str(verdict.facts["charge"]).removeprefix("leans to class 7 with ").removesuffix(" others")
    assert 7 <= int(leaning) <= MAX_CHARGED_SHARE * 50
    assert float(verdict.facts["clarity.crowd"]) >= CROWD_LEAD
    assert int((verdict.elected & planted.infected).sum()) <= 2
    assert int((~verdict.elected & ~planted.infected).sum()) <= 10


def test_facts_hold_the_evidence_of_each_ballot(make_round: Callable[..., Any]) -> None:
    planted, verdict = run(make_round, infected=15, together=3.0)[-1]
    facts = verdict.facts
    assert facts["charge"] == facts["words.split"]
    assert float(facts["clarity.split"]) >= float(facts["bound.split"])
    assert float(facts["clarity"]) >= 1
    assert torch.equal(facts["charged.split"], planted.infected.double())  # type: ignore[arg-type]
    assert verdict.suspects is not None
    assert torch.equal(verdict.suspects, ~verdict.elected)
    shares = facts["shares"]
    assert isinstance(shares, Tensor)
    assert torch.equal(shares > 0, verdict.elected)


def test_facts_name_strangers(make_round: Callable[..., Any]) -> None:
    _, verdict = run(make_round, rows=8, infected=1)[-1]
    assert verdict.facts["charge"] == "deviates in length, direction and rewired inputs"
    assert float(verdict.facts["clarity.strangers"]) >= STRANGENESS


def test_nobody_is_accused_of_pointing_as_the_accused_before_anybody_was(make_round: Callable[..., Any]) -> None:
    planted = make_round(4, infected=15, together=0.4, undo=0.3)
    state = run(make_round, infected=15)[-1][1].state
    assert state is not None
    without = SnowballPlus(without=("reputation",))  # which would go before
    accused, nobody = (
        without(planted.updates, Context(round=9, base=planted.base, state={**state, "charges": charges}))
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
        other = SnowballPlus()(moved, Context(round=round, rounds=ROUNDS, base=planted.base, state=state))
        assert torch.equal(other.elected, verdict.elected)
        assert pack(other.state) == pack(verdict.state)
        state = other.state


def test_the_order_of_arrival_accuses_nobody_else_of_rewiring_a_position(make_image_round: Callable[..., Any]) -> None:
    state: State | None = None
    order = torch.randperm(50, generator=stream(1))
    for round, (planted, verdict) in enumerate(run(make_image_round, infected=12, rewired=1.7), start=1):
        updates = planted.updates
        clients = tuple(updates.clients[row] for row in order)
        moved = Updates(updates.values[order], updates.examples[order], clients, updates.layout)
        other = SnowballPlus()(moved, Context(round=round, rounds=ROUNDS, base=planted.base, state=state))
        assert torch.equal(other.elected, verdict.elected)
        assert torch.equal(other.delta, verdict.delta)
        assert other.facts.get("charge") == verdict.facts.get("charge")
        assert pack(other.state) == pack(verdict.state)
        state = other.state


def test_snowball_plus_passes_every_check_with_few_remembered() -> None:
    check_defense(SnowballPlus(remember=3), examples=10)


def test_snowball_plus_passes_every_check_without_the_crowd() -> None:
    check_defense(SnowballPlus(without=("crowd", "reputation")), examples=10)
