from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball_plus.ballots import (
    CLEAR_SPLIT,
    CROWD_LEAD,
    LONE_SEPARATION,
    REPEATED_SPLIT,
    STRANGENESS,
    Charge,
    charge_crowd,
    charge_fullest_class,
    charge_recalled,
    charge_split,
    charge_strangers,
    find_split,
    measure_crowds,
    measure_strangeness,
    rank_alignment,
    remember_crowds,
)
from snowball.defenses.snowball_plus.evidence import Evidence, Recalled, gather_evidence
from snowball.defenses.snowball_plus.memory import recall_suspects, update_clients
from snowball.rng import stream

WEAK = {"infected": 15, "together": 0.45, "undo": 0.3}
"""A group that is found, but is not clear by itself in most rounds."""


def gather(planted: Any, recalled: Recalled | None = None) -> Evidence:
    """The evidence of a made-up round."""
    return gather_evidence(planted.updates, planted.base, recalled)


def recall(planted: Any, suspects: Tensor | None = None) -> Recalled:
    """What is remembered of a made-up round's infected, or of other suspects."""
    chosen = planted.infected_by_client if suspects is None else suspects
    return recall_suspects(None, planted.updates, gather(planted), chosen)


def require_split(evidence: Evidence) -> Charge:
    """The clearest split, which there must be."""
    split = find_split(evidence)
    assert split is not None
    return split


def lean_to(*counts: int, rows: int = 50) -> Evidence:
    """Evidence of nothing but leaning: so many rows lean to each class, one after the other, the rest to none."""
    leans = torch.zeros(rows, len(counts), dtype=torch.float64)
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    leans[torch.arange(len(classes)), classes] = 1
    return Evidence(torch.ones(rows, dtype=torch.float64), {}, {}, {}, leans, None, {}, {})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("infected", [5, 15, 24])
def test_a_clear_split_is_found_and_charged(make_round: Callable[..., Any], seed: int, infected: int) -> None:
    planted = make_round(seed, infected=infected)
    evidence = gather(planted)
    split = require_split(evidence)
    assert torch.equal(split.suspects, planted.infected_by_client)
    assert split.ballot == "split"
    assert split.words.startswith(f"moves with {infected - 1} others in ")
    assert charge_split(evidence, split) is split


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_charged_in_a_round_of_noise(make_round: Callable[..., Any], seed: int) -> None:
    attacked, planted = make_round(seed + 100, infected=15), make_round(seed)
    for recalled in (None, recall(attacked), recall(attacked, torch.arange(50) < 15)):
        evidence = gather(planted, recalled)
        assert charge_split(evidence, find_split(evidence)) is None
        assert charge_recalled(evidence) is None
        assert charge_strangers(evidence, measure_strangeness(evidence)) is None


@pytest.mark.parametrize("undo", [1.0, -1.0])
def test_of_two_halves_the_one_that_undoes_the_model_is_suspect(make_round: Callable[..., Any], undo: float) -> None:
    planted = make_round(0, infected=25, undo=undo)
    split = require_split(gather(planted))
    assert torch.equal(split.suspects, planted.infected_by_client == (undo > 0))


def test_the_clarity_is_the_separation_and_the_rank_of_the_alignment(make_round: Callable[..., Any]) -> None:
    evidence = gather(make_round(0, infected=15))
    split = require_split(evidence)
    assert rank_alignment(evidence, split.suspects) == pytest.approx(5.5572, abs=1e-4)
    assert split.words.endswith(f"separation {split.clarity - 5.5572:.1f}")
    assert rank_alignment(replace(evidence, alignment=None), split.suspects) == 0


def test_a_split_is_neither_a_few_rows_nor_looked_for_among_few(make_round: Callable[..., Any]) -> None:
    assert charge_split(gather(make_round(0)), None) is None
    for seed in range(5):
        few = make_round(seed, infected=4, together=3.0)
        assert int(require_split(gather(few)).suspects.sum()) >= 5
        assert find_split(gather(make_round(seed, rows=15, infected=5))) is None
        small = make_round(seed, rows=16, infected=5)
        assert torch.equal(require_split(gather(small)).suspects, small.infected_by_client)


@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7])
def test_a_weaker_split_is_charged_only_if_earlier_rounds_agree(make_round: Callable[..., Any], seed: int) -> None:
    planted, earlier = make_round(seed, **WEAK), make_round(100 + seed, **WEAK)
    evidence = gather(planted)
    split = require_split(evidence)
    assert REPEATED_SPLIT <= split.clarity < CLEAR_SPLIT
    assert charge_split(evidence, split) is None
    assert charge_split(gather(planted, recall(earlier)), split) is split
    others = torch.randperm(50, generator=stream(seed)) < 15
    for differing in (recall(make_round(seed + 200), others), recall(earlier, ~earlier.infected_by_client)):
        assert charge_split(gather(planted, differing), split) is None


@pytest.mark.parametrize(
    ("clarity", "recalled", "charged"),
    [
        (CLEAR_SPLIT, False, True),
        (CLEAR_SPLIT - 0.01, False, False),
        (REPEATED_SPLIT, True, True),
        (REPEATED_SPLIT - 0.01, True, False),
    ],
)
def test_how_clear_a_split_must_be(
    make_round: Callable[..., Any], clarity: float, recalled: bool, charged: bool
) -> None:
    planted = make_round(0, infected=15)
    evidence = gather(planted, recall(planted) if recalled else None)
    split = Charge("split", planted.infected_by_client, clarity, "")
    assert charge_split(evidence, split) is (split if charged else None)


@pytest.mark.parametrize(("separation", "charged"), [(LONE_SEPARATION, True), (LONE_SEPARATION - 0.01, False)])
def test_a_wide_split_is_charged_whatever_the_alignment(
    make_round: Callable[..., Any], separation: float, charged: bool
) -> None:
    planted = make_round(0, infected=15, undo=-1.0)
    evidence, suspects = gather(planted), planted.infected_by_client
    clarity = separation + rank_alignment(evidence, suspects) + 1e-9
    assert clarity < 2
    assert (charge_split(evidence, Charge("split", suspects, clarity, "")) is not None) == charged


@pytest.mark.parametrize("seed", range(5))
def test_those_who_point_as_earlier_accused_are_charged(make_round: Callable[..., Any], seed: int) -> None:
    planted, earlier = make_round(seed, **WEAK), make_round(100 + seed, **WEAK)
    charge = charge_recalled(gather(planted, recall(earlier)))
    assert charge is not None
    assert charge.ballot == "recalled"
    assert int((charge.suspects != planted.infected_by_client).sum()) <= 2
    assert charge_recalled(gather(planted)) is None
    few = make_round(seed, rows=15, infected=5)
    assert charge_recalled(gather(few, recall(few))) is None


def test_most_cannot_be_charged_for_pointing_as_earlier_accused(make_round: Callable[..., Any]) -> None:
    for infected, charged in ((25, True), (26, False)):
        planted = make_round(0, infected=infected)
        assert (charge_recalled(gather(planted, recall(planted))) is not None) == charged


def hold_crowds(*rounds: Evidence) -> list[Charge | None]:
    """The crowd that each of some rounds charges."""
    record: Tensor | None = None
    charges = []
    for evidence in rounds:
        measured = measure_crowds(evidence)
        assert measured is not None
        before, record = record, remember_crowds(record, measured)
        charges.append(charge_crowd(evidence, before, record))
    return charges


def test_crowds_are_measured_in_deviations() -> None:
    measured = measure_crowds(lean_to(20, 10, 10, 10))
    deviation = (50 * 0.25 * 0.75) ** 0.5
    torch.testing.assert_close(
        measured, torch.tensor([7.5, -2.5, -2.5, -2.5], dtype=torch.float64) / deviation, rtol=1e-12, atol=0
    )
    crowded = measure_crowds(lean_to(50, 0, 0, 0, 0, 0, 0, 0))
    assert crowded is not None
    assert float(crowded.max()) == 6
    assert measure_crowds(replace(lean_to(20, 10, 10, 10), leans=None)) is None


def test_a_crowd_that_undoes_the_model_counts_more() -> None:
    evidence = lean_to(20, 14, 14, 2)
    alignment = torch.where(torch.arange(50) < 20, 1.0, 0).double()
    alignment[48:] = 2  # the last class has the highest of all, but two are too few to rank
    more, plain = measure_crowds(replace(evidence, alignment=alignment)), measure_crowds(evidence)
    assert more is not None
    assert plain is not None
    assert float(more[0] - plain[0]) == pytest.approx(2)  # of half a rank each, four ranks at most
    assert float(more[1] - plain[1]) < 0
    assert float(more[3] - plain[3]) == 0


def test_a_record_of_crowds_fades() -> None:
    measured = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert remember_crowds(None, measured).tolist() == pytest.approx([0.3, 0.6])
    assert remember_crowds(torch.ones(2, dtype=torch.float64), measured).tolist() == pytest.approx([1.0, 1.3])


@pytest.mark.parametrize("leaning", [12, 16, 20, 27])
def test_no_round_charges_a_crowd_alone(leaning: int) -> None:
    """However many lean to a class: neither in the first round, nor where another class led so far."""
    crowded, other = lean_to(2, 2, leaning, 2, 2, 2, 2, 2), lean_to(2, 2, 2, 2, 2, 4, 2, 2)
    aligned = torch.where(torch.arange(50) < 4 + leaning, 1.0, 0).double()
    for evidence in (crowded, replace(crowded, alignment=aligned)):
        charges = hold_crowds(evidence, evidence)
        assert charges[0] is None
        assert charges[1] is not None
        assert hold_crowds(other, other, evidence) == [None] * 3


def test_a_crowd_is_charged_once_its_class_has_led_for_some_rounds() -> None:
    first, second, third, fourth = hold_crowds(*[lean_to(4, 4, 12, 4, 4, 4, 4, 4)] * 4)
    assert first is None
    assert second is not None
    assert third is not None
    assert fourth is not None
    assert second.clarity < third.clarity < fourth.clarity
    assert fourth.ballot == "crowd"
    assert fourth.words == "leans to class 2 with 11 others"
    assert fourth.suspects.nonzero().flatten().tolist() == list(range(8, 20))


def test_no_crowd_is_charged_while_the_leading_class_changes() -> None:
    rounds = [[4] * 8 for _ in range(8)]
    for number, counts in enumerate(rounds):
        counts[number] = 12
    assert hold_crowds(*(lean_to(*counts) for counts in rounds)) == [None] * 8


@pytest.mark.parametrize("seed", range(5))
def test_no_crowd_is_charged_in_rounds_of_noise(make_round: Callable[..., Any], seed: int) -> None:
    assert hold_crowds(*(gather(make_round(100 * seed + number)) for number in range(8))) == [None] * 8


@pytest.mark.parametrize(("leaning", "charged"), [(2, False), (3, True), (27, True), (28, False)])
def test_how_many_a_crowd_may_be(leaning: int, charged: bool) -> None:
    crowds = torch.tensor([0.0, CROWD_LEAD, 0, 0], dtype=torch.float64)
    evidence = lean_to(1, leaning, 1, 1)
    assert (charge_crowd(evidence, crowds, crowds) is not None) == charged
    assert charge_crowd(evidence, crowds, crowds * 0.99) is None
    assert charge_crowd(evidence, crowds, None) is None
    assert charge_crowd(lean_to(1, 5, 1, 1, rows=15), crowds, crowds) is None


def test_those_who_lean_to_the_fullest_class_are_charged() -> None:
    charge = charge_fullest_class(lean_to(5, 6, 7, 5), round=2)
    assert charge is not None
    assert charge.ballot == "fullest"
    assert charge.words == "leans to class 2 with 6 others"
    assert charge.suspects.nonzero().flatten().tolist() == list(range(11, 18))
    assert charge.clarity == pytest.approx(7 / 50)
    assert charge_fullest_class(lean_to(0, 28, 0, 0), round=2) is None
    assert charge_fullest_class(lean_to(0, 27, 0, 0), round=2) is not None
    assert charge_fullest_class(lean_to(0, 0, 0, 0), round=2) is None
    assert charge_fullest_class(lean_to(1, 5, 1, 1, rows=15), round=2) is None
    assert charge_fullest_class(replace(lean_to(1, 5, 1, 1), leans=None), round=2) is None


def test_in_the_first_round_all_lean_alike_and_are_compared_with_the_median() -> None:
    evidence = lean_to(0, 0, 12, 0)
    assert evidence.leans is not None
    leans = evidence.leans + torch.tensor([0.8, 0, 0, 0], dtype=torch.float64)
    alike = replace(evidence, leans=leans)
    first = charge_fullest_class(alike, round=1)
    assert first is not None
    assert first.suspects.nonzero().flatten().tolist() == list(range(12))
    assert first.words == "leans to class 2 with 11 others"
    assert charge_fullest_class(alike, round=2) is None  # all lean to class 0


def watch_strangers(make_round: Callable[..., Any], seed: int, infected: int) -> list[tuple[Any, Charge | None]]:
    """Six rounds of eight clients, and who is charged as a stranger."""
    known: Any = {}
    watched = []
    for round in range(1, 7):
        planted = make_round(100 * seed + round, rows=8, infected=infected)
        evidence, names = gather(planted), sorted(planted.updates.clients)
        known, strangeness = update_clients(known, names, measure_strangeness(evidence), round)
        watched.append((planted, charge_strangers(evidence, strangeness)))
    return watched


@pytest.mark.parametrize("seed", range(5))
def test_one_of_eight_that_deviates_round_after_round_is_a_stranger(make_round: Callable[..., Any], seed: int) -> None:
    for planted, charge in watch_strangers(make_round, seed, infected=1)[1:]:
        assert charge is not None
        assert charge.ballot == "strangers"
        assert torch.equal(charge.suspects, planted.infected_by_client)


@pytest.mark.parametrize("seed", range(10))
def test_nobody_of_eight_is_a_stranger_in_noise(make_round: Callable[..., Any], seed: int) -> None:
    assert [charge for _, charge in watch_strangers(make_round, seed, infected=0)] == [None] * 6


@pytest.mark.parametrize(
    ("rows", "strange", "charged"), [(8, 0, False), (8, 1, True), (8, 4, True), (8, 5, False), (16, 1, False)]
)
def test_how_many_strangers_there_may_be(rows: int, strange: int, charged: bool) -> None:
    strangeness = torch.where(torch.arange(rows) < strange, STRANGENESS, STRANGENESS - 0.01).double()
    assert (charge_strangers(lean_to(1, 1, 1, 1, rows=rows), strangeness) is not None) == charged


def test_pointing_as_earlier_suspects_did_is_strange(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, rows=8, infected=1)
    more = measure_strangeness(gather(planted, recall(planted))) - measure_strangeness(gather(planted))
    assert float(more[planted.infected_by_client]) > 3
    assert abs(float(more.median())) < 1


def test_no_deviation_decides_alone(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, rows=8)
    plain = measure_strangeness(gather(planted))
    values = planted.updates.values.clone()
    row = int(planted.updates.by_client[3])
    values[row] *= 1e6  # only its length deviates
    grown = measure_strangeness(gather(replace(planted, updates=replace(planted.updates, values=values))))
    assert float(grown[3] - plain[3]) < 12
    assert float(grown[3]) > float(plain[3]) + 3
