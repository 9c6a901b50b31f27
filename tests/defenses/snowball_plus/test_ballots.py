from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made_evidence import gather, lean_to
from torch import Tensor

from snowball.defenses.snowball_plus.ballots import (
    ALIGNMENT_WEIGHT,
    CAUTION,
    CAUTIOUS_ROUNDS,
    CLEAR_FIT,
    CLEAR_SPLIT,
    CROWD_LEAD,
    CROWD_NOW,
    LONE_SEPARATION,
    MAX_CHARGED_SHARE,
    MAX_EXCESS,
    MIN_ACCUSED_SHARE,
    MIN_SPLIT_ROWS,
    RECORD_KEPT,
    REPEATED_CROWD,
    REPEATED_SPLIT,
    REPUTATION,
    Charge,
    charge_crowd,
    charge_recalled,
    charge_reputation,
    charge_split,
    drop_fitting,
    find_split,
    measure_crowds,
    rank_alignment,
    rank_disagreement,
    update_record,
    weigh_by_crowds,
)
from snowball.defenses.snowball_plus.evidence import (
    POSITIONS,
    Evidence,
    Recalled,
    gather_evidence,
)
from snowball.defenses.snowball_plus.few import (
    FEW_SITES,
    STRANGENESS,
    STRANGENESS_OF_FEW,
    charge_strangers,
    measure_rewiring,
    measure_strangeness,
)
from snowball.defenses.snowball_plus.memory import read_traits, recall_suspects, update_clients
from snowball.defenses.snowball_plus.statistics import cut_in_two, rank_group
from snowball.rng import stream
from snowball.updates import Updates

WEAK = {"infected": 15, "together": 0.45, "undo": 0.3}
"""A group that is found, but is not clear by itself in most rounds."""


def recall(planted: Any, suspects: Tensor | None = None) -> Recalled:
    """What is remembered of a made-up round's infected, or of other suspects."""
    chosen = planted.infected if suspects is None else suspects
    return recall_suspects(None, planted.updates, gather(planted), chosen)


def require_split(evidence: Evidence) -> Charge:
    """The clearest split, which there must be."""
    split = find_split(evidence)
    assert split is not None
    return split


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("infected", [5, 15, 24])
def test_a_clear_split_is_found_and_charged(make_round: Callable[..., Any], seed: int, infected: int) -> None:
    planted = make_round(seed, infected=infected)
    evidence = gather(planted)
    split = require_split(evidence)
    assert torch.equal(split.suspects, planted.infected)
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
        assert charge_strangers(evidence, know_strangeness(measure(evidence))) is None


@pytest.mark.parametrize("undo", [1.0, -1.0])
def test_of_two_halves_the_one_that_undoes_the_model_is_suspect(make_round: Callable[..., Any], undo: float) -> None:
    planted = make_round(0, infected=25, undo=undo)
    split = require_split(gather(planted))
    assert torch.equal(split.suspects, planted.infected == (undo > 0))


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
        assert torch.equal(require_split(gather(small)).suspects, small.infected)


@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7])
def test_a_weaker_split_is_charged_only_if_earlier_rounds_agree(make_round: Callable[..., Any], seed: int) -> None:
    planted, earlier = make_round(seed, **WEAK), make_round(100 + seed, **WEAK)
    evidence = gather(planted)
    split = require_split(evidence)
    assert REPEATED_SPLIT <= split.clarity < CLEAR_SPLIT
    assert charge_split(evidence, split) is None
    charge = charge_split(gather(planted, recall(earlier)), split)
    assert charge is not None
    assert charge.suspects is split.suspects
    assert charge.bound == REPEATED_SPLIT
    others = torch.randperm(50, generator=stream(seed)) < 15
    for differing in (recall(make_round(seed + 200), others), recall(earlier, ~earlier.infected)):
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
    split = Charge("split", planted.infected, clarity, "", CLEAR_SPLIT)
    charge = charge_split(evidence, split)
    assert (charge is not None) == charged
    if charge:
        assert charge.bound == clarity


@pytest.mark.parametrize(("separation", "charged"), [(LONE_SEPARATION, True), (LONE_SEPARATION - 0.01, False)])
def test_a_wide_split_is_charged_whatever_the_alignment(
    make_round: Callable[..., Any], separation: float, charged: bool
) -> None:
    planted = make_round(0, infected=15, undo=-1.0)
    evidence, suspects = gather(planted), planted.infected
    clarity = separation + rank_alignment(evidence, suspects) + 1e-9
    assert clarity < 2
    assert (charge_split(evidence, Charge("split", suspects, clarity, "", CLEAR_SPLIT)) is not None) == charged


@pytest.mark.parametrize("seed", range(5))
def test_those_who_point_as_earlier_accused_are_charged(make_round: Callable[..., Any], seed: int) -> None:
    planted, earlier = make_round(seed, **WEAK), make_round(100 + seed, **WEAK)
    charge = charge_recalled(gather(planted, recall(earlier)))
    assert charge is not None
    assert charge.ballot == "recalled"
    assert int((charge.suspects != planted.infected).sum()) <= 2
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
        record = update_record(record, measured)
        charges.append(charge_crowd(evidence, measured, record, False))
    return charges


def test_crowds_are_measured_in_deviations() -> None:
    measured = measure_crowds(lean_to(20, 10, 10, 10))
    deviation = (50 * 0.25 * 0.75) ** 0.5
    torch.testing.assert_close(
        measured, torch.tensor([7.5, -2.5, -2.5, -2.5], dtype=torch.float64) / deviation, rtol=1e-12, atol=0
    )
    crowded = measure_crowds(lean_to(50, 0, 0, 0, 0, 0, 0, 0))
    assert crowded is not None
    assert float(crowded.max()) == MAX_EXCESS
    assert measure_crowds(replace(lean_to(20, 10, 10, 10), leans=None)) is None
    assert measure_crowds(replace(lean_to(20, 10, 10, 10), looks=None)) is None


def test_a_crowd_that_undoes_the_model_counts_more() -> None:
    evidence = lean_to(20, 14, 14, 2)
    alignment = torch.where(torch.arange(50) < 20, 1.0, 0).double()
    alignment[48:] = 2  # the last class has the highest of all, but two are too few to rank
    more, plain = measure_crowds(replace(evidence, alignment=alignment)), measure_crowds(evidence)
    assert more is not None
    assert plain is not None
    rank = min(rank_group(alignment, torch.arange(50) < 20), MAX_EXCESS)
    assert float(more[0] - plain[0]) == pytest.approx(ALIGNMENT_WEIGHT * rank)
    assert float(more[1] - plain[1]) < 0
    assert float(more[3] - plain[3]) == 0


def test_disagreement_is_ranked_among_all_who_raise_any_class() -> None:
    looks = torch.randn(30, 6, generator=stream(3, "looks"), dtype=torch.float64).round(decimals=1)
    looks[torch.rand(30, 6, generator=stream(3, "raised")) < 0.6] = torch.nan
    looks[:, 4] = torch.nan  # which nobody raises
    looks[:, 1] -= 3  # nobody agrees on it
    pairs = [(float(looks[row, number]), number) for row in range(30) for number in range(6)]
    known = [(look, number) for look, number in pairs if look == look]
    values = torch.tensor([-look for look, _ in known], dtype=torch.float64)
    expected = [rank_group(values, torch.tensor([each == number for _, each in known])) for number in range(6)]
    ranks = rank_disagreement(looks)
    assert ranks.tolist() == pytest.approx(expected)
    assert int(ranks.argmax()) == 1
    assert float(ranks[4]) == 0


def test_where_nobody_leans_nobody_disagrees() -> None:
    assert rank_disagreement(torch.full((20, 4), torch.nan, dtype=torch.float64)).tolist() == [0] * 4
    measured = measure_crowds(lean_to(0, 0, 0, 0))
    assert measured is not None
    assert measured.tolist() == [0] * 4
    assert charge_crowd(lean_to(0, 0, 0, 0), measured, measured, False) is None


AGREEING, DISAGREEING, CROWD = 2, 7, 12


def raise_classes(seed: int) -> Updates:
    """Updates of 50 clients: twelve raise one class on the same features, twelve another one, each on its own.

    The others raise the other classes evenly, on features that they have partly in common.
    """
    rng, fixed = stream(seed, "raised classes"), stream(0, "features of classes")
    features = torch.randn(10, 24, generator=fixed)
    own = torch.randn(50, 24, generator=rng)
    others = [number for number in range(10) if number not in (AGREEING, DISAGREEING)]
    classes = [AGREEING] * CROWD + [DISAGREEING] * CROWD + [others[row % 8] for row in range(50 - 2 * CROWD)]
    last = 0.1 * torch.randn(50, 10, 24, generator=rng)
    for row, number in enumerate(classes):
        common = {AGREEING: 0.9, DISAGREEING: 0.0}.get(number, 0.6)
        last[row, number] += 1 + common * features[number] + (1 - common) * own[row]
    clients = [f"{row:02}" for row in range(50)]
    hidden = torch.randn(50, 24, 10, generator=rng)
    return Updates.from_layers({"hidden.weight": hidden, "last.weight": last}, clients=clients)


@pytest.mark.parametrize("seed", range(5))
def test_a_crowd_that_agrees_on_its_features_is_less_suspect_than_one_that_does_not(seed: int) -> None:
    measured = measure_crowds(gather_evidence(raise_classes(seed), None, None))
    assert measured is not None
    assert int(measured.argmax()) == DISAGREEING
    assert float(measured[DISAGREEING]) > float(measured[AGREEING]) + 4


def test_of_two_crowds_those_who_disagree_are_charged() -> None:
    rounds = [gather_evidence(raise_classes(seed), None, None) for seed in range(8)]
    charge = hold_crowds(*rounds)[-1]
    assert charge is not None
    assert charge.words == f"leans to class {DISAGREEING} with {CROWD - 1} others"
    assert charge.suspects.nonzero().flatten().tolist() == list(range(CROWD, 2 * CROWD))


def test_a_record_fades() -> None:
    measured = torch.tensor([1.0, 2.0], dtype=torch.float64)
    new = 1 - RECORD_KEPT
    assert update_record(None, measured).tolist() == pytest.approx([new, 2 * new])
    assert update_record(torch.ones(2, dtype=torch.float64), measured).tolist() == pytest.approx(
        [1, RECORD_KEPT + 2 * new]
    )
    assert measured.tolist() == [1, 2]


@pytest.mark.parametrize("leaning", [12, 16, 20, 27])
def test_numbers_alone_charge_no_crowd_in_its_first_round(leaning: int) -> None:
    crowded, other = lean_to(2, 2, leaning, 2, 2, 2, 2, 2), lean_to(2, 2, 2, 2, 2, 12, 2, 2)
    assert hold_crowds(crowded) == [None]
    assert hold_crowds(other, other, crowded)[-1] is None  # nor where another class led so far


def disagree_partly(number: int) -> Evidence:
    """Twelve lean to a class and four to each other one; half of the twelve agree least of all, half as the others."""
    counts = [4] * 8
    counts[number] = 12
    evidence = lean_to(*counts)
    assert evidence.looks is not None
    looks = evidence.looks.clone()
    looks[4 * number : 4 * number + 6, number] = 0.1
    return replace(evidence, looks=looks)


def test_a_crowd_is_charged_once_its_class_has_led_for_some_rounds() -> None:
    charges = hold_crowds(*[disagree_partly(2)] * 12)
    found = [charge for charge in charges if charge is not None]
    assert charges[0] is None
    assert charges[-len(found) :] == found  # from some round on
    assert [charge.clarity for charge in found] == sorted(charge.clarity for charge in found)
    assert found[-1].ballot == "crowd"
    assert found[-1].words == "leans to class 2 with 11 others"
    assert found[-1].suspects.nonzero().flatten().tolist() == list(range(8, 20))


def test_no_crowd_is_charged_while_the_leading_class_changes() -> None:
    assert hold_crowds(*(disagree_partly(number) for number in range(8))) == [None] * 8


@pytest.mark.parametrize("seed", range(5))
def test_no_crowd_is_charged_in_rounds_of_noise(make_round: Callable[..., Any], seed: int) -> None:
    assert hold_crowds(*(gather(make_round(100 * seed + number)) for number in range(8))) == [None] * 8


def set_class(value: float) -> Tensor:
    """(4,) zeros but for class 1."""
    return torch.tensor([0.0, value, 0, 0], dtype=torch.float64)


LARGEST_CROWD = int(MAX_CHARGED_SHARE * 50)


@pytest.mark.parametrize(
    ("leaning", "charged"), [(2, False), (3, True), (LARGEST_CROWD, True), (LARGEST_CROWD + 1, False)]
)
def test_how_many_a_crowd_may_be(leaning: int, charged: bool) -> None:
    crowds, measured = set_class(CROWD_LEAD), set_class(CROWD_NOW)
    assert (charge_crowd(lean_to(1, leaning, 1, 1), measured, crowds, False) is not None) == charged


def test_what_a_crowd_must_be_charged_by() -> None:
    evidence, few = lean_to(1, 12, 1, 1), lean_to(1, 5, 1, 1, rows=MIN_SPLIT_ROWS - 1)
    enough, now = set_class(CROWD_LEAD), set_class(CROWD_NOW)
    charge = charge_crowd(evidence, now, enough, False)
    assert charge is not None
    assert charge.clarity == CROWD_LEAD
    assert charge_crowd(evidence, now, set_class(CROWD_LEAD - 0.01), False) is None
    assert charge_crowd(evidence, set_class(CROWD_NOW - 0.01), enough, False) is None  # attackers may pause
    assert (
        charge_crowd(evidence, now, enough + torch.tensor([0.01, 0, 0, 0]), False) is None
    )  # the second class is close
    assert charge_crowd(evidence, now, None, False) is None
    assert charge_crowd(evidence, None, enough, False) is None
    assert charge_crowd(replace(evidence, leans=None), now, enough, False) is None
    assert charge_crowd(few, now, enough, False) is None


def fit_model(*fitting: int, target: int = 1) -> Evidence:
    """Evidence of twelve who lean to class 1, some of whom fit the model."""
    evidence = lean_to(0, 12, 0, 0)
    fits = torch.linspace(-0.1, 0.1, 50, dtype=torch.float64)[:, None].repeat(1, 4)
    fits[list(fitting), target] += 0.8
    return replace(evidence, fits=fits)


def test_those_who_raise_a_class_as_the_model_knows_it_are_not_of_the_crowd() -> None:
    leaning = torch.arange(50) < 12
    assert drop_fitting(fit_model(1, 5, 11), leaning, 1).nonzero().flatten().tolist() == [0, 2, 3, 4, 6, 7, 8, 9, 10]
    assert torch.equal(leaning, torch.arange(50) < 12)  # which is not changed
    charge = charge_crowd(fit_model(1, 5, 11), set_class(CROWD_NOW), set_class(CROWD_LEAD), False)
    assert charge is not None
    assert charge.words == "leans to class 1 with 8 others"
    assert not charge.suspects[[1, 5, 11]].any()


@pytest.mark.parametrize(
    "evidence",
    [
        lean_to(0, 12, 0, 0),
        fit_model(*range(6)),
        fit_model(*range(1, 12)),
        replace(fit_model(), fits=torch.full((50, 4), 0.3, dtype=torch.float64)),
    ],
    ids=["no model", "half fit", "most fit", "all alike"],
)
def test_a_crowd_stands_where_most_of_it_fits_the_model_or_nothing_is_known(evidence: Evidence) -> None:
    leaning = torch.arange(50) < 12
    assert torch.equal(drop_fitting(evidence, leaning, 1), leaning)


def test_a_crowd_stands_where_those_who_fit_the_model_do_not_stand_apart() -> None:
    evidence = fit_model()
    assert evidence.fits is not None
    leaning = torch.arange(50) < 12
    evidence.fits[:12, 1] = torch.tensor([30, 20, 15, 10, 5, 2, 0, -2, -5, -10, -20, -30]) / 100
    upper, separation = cut_in_two(evidence.fits[leaning, 1])
    assert 0 < upper.sum() < 6  # a minority, which would be let go if it stood apart
    assert separation < CLEAR_FIT
    assert torch.equal(drop_fitting(evidence, leaning, 1), leaning)


@pytest.mark.parametrize("count", [0, 1])
def test_a_crowd_of_one_or_nobody_stands(count: int) -> None:
    leaning = torch.arange(50) < count
    assert torch.equal(drop_fitting(fit_model(0, 1), leaning, 1), leaning)


def test_in_the_first_rounds_those_who_lean_to_a_suspect_class_weigh_less() -> None:
    evidence = lean_to(3, 12, 5, 5)
    for round in range(1, CAUTIOUS_ROUNDS + 1):
        grown = 1 - RECORD_KEPT**round  # of a record that was always the same
        crowds = grown * torch.tensor([0.5, 3, -2, 0], dtype=torch.float64)
        weights = weigh_by_crowds(evidence, crowds, round, False)
        expected = [1.5**-CAUTION] * 3 + [4.0**-CAUTION] * 12 + [1.0] * 35
        assert weights.tolist() == pytest.approx(expected)


def test_who_leans_to_two_classes_weighs_as_both_have_it_by_their_shares() -> None:
    evidence = lean_to(1, 1, 1, 1, 1, 1, 1, 1, 1)
    assert evidence.leans is not None
    leans = evidence.leans.clone()
    leans[0, 0], leans[0, 2], leans[0, 5] = 0.6, 0.7, 0.1  # shares of 0.36 and 0.49; to class 5 it does not lean
    crowds = (1 - RECORD_KEPT) * torch.tensor([1, 1, 2, 0, 0, 9, 0, 0, 0], dtype=torch.float64)
    weights = weigh_by_crowds(replace(evidence, leans=leans), crowds, 1, False)
    assert weights[:3].tolist() == pytest.approx([(1 + 0.36 + 2 * 0.49) ** -CAUTION, 2**-CAUTION, 3**-CAUTION])


def test_all_weigh_alike_once_the_first_rounds_are_over_or_nothing_is_known() -> None:
    evidence, crowds = lean_to(3, 12, 5, 5), torch.tensor([0.0, 9, 0, 0], dtype=torch.float64)
    for weights in (
        weigh_by_crowds(evidence, crowds, CAUTIOUS_ROUNDS + 1, False),
        weigh_by_crowds(evidence, None, 1, False),
        weigh_by_crowds(replace(evidence, leans=None), crowds, 1, False),
    ):
        assert weights.dtype == torch.float64
        assert weights.tolist() == [1] * 50
    assert weigh_by_crowds(evidence, crowds, CAUTIOUS_ROUNDS, False).min() < 1
    assert weigh_by_crowds(evidence, crowds, CAUTIOUS_ROUNDS + 1, True).min() < 1  # they may attack again


@pytest.mark.parametrize(("lead", "charged"), [(REPEATED_CROWD, True), (REPEATED_CROWD - 0.01, False)])
def test_after_an_accusation_a_smaller_lead_of_a_crowd_that_agrees_is_enough(lead: float, charged: bool) -> None:
    evidence, now = lean_to(1, 12, 1, 1), set_class(CROWD_NOW)
    leaning = (torch.arange(50) >= 1) & (torch.arange(50) < 13)
    agreeing = replace(evidence, recalled_directions={"fc": leaning.double()})
    other = replace(evidence, recalled_directions={"fc": 1 - leaning.double()})
    assert (charge_crowd(agreeing, now, set_class(lead), True) is not None) == charged
    assert charge_crowd(agreeing, now, set_class(lead), False) is None
    assert charge_crowd(other, now, set_class(lead), True) is None


def measure(evidence: Evidence) -> Tensor:
    """The strangeness of clients of equal size."""
    return measure_strangeness(evidence, torch.zeros(len(evidence)))


def know_strangeness(strangeness: Tensor) -> Tensor:
    """(n, 4) what is known of clients after a first round in which they were so strange."""
    clients = [f"{row:02}" for row in range(len(strangeness))]
    return read_traits(update_clients({}, clients, strangeness, 1), clients)


def watch_strangers(make_round: Callable[..., Any], seed: int, infected: int) -> list[tuple[Any, Charge | None]]:
    """Six rounds of eight clients, and who is charged as a stranger."""
    known: Any = {}
    watched = []
    for round in range(1, 7):
        planted = make_round(100 * seed + round, rows=8, infected=infected)
        evidence, names = gather(planted), sorted(planted.updates.clients)
        known = update_clients(known, names, measure(evidence), round)
        watched.append((planted, charge_strangers(evidence, read_traits(known, names))))
    return watched


@pytest.mark.parametrize("seed", range(5))
def test_one_of_eight_that_deviates_round_after_round_is_a_stranger(make_round: Callable[..., Any], seed: int) -> None:
    for planted, charge in watch_strangers(make_round, seed, infected=1)[1:]:
        assert charge is not None
        assert charge.ballot == "strangers"
        assert torch.equal(charge.suspects, planted.infected)


@pytest.mark.parametrize("seed", range(10))
def test_nobody_of_eight_is_a_stranger_in_noise(make_round: Callable[..., Any], seed: int) -> None:
    assert [charge for _, charge in watch_strangers(make_round, seed, infected=0)] == [None] * 6


@pytest.mark.parametrize(
    ("rows", "strange", "charged"),
    [
        (FEW_SITES, 0, False),
        (FEW_SITES, 1, True),
        (FEW_SITES, FEW_SITES // 2, True),
        (FEW_SITES, FEW_SITES // 2 + 1, False),
        (FEW_SITES - 1, 1, True),
        (MIN_SPLIT_ROWS - 1, 1, True),
        (MIN_SPLIT_ROWS, 1, False),
    ],
)
def test_how_many_strangers_there_may_be(rows: int, strange: int, charged: bool) -> None:
    bound = STRANGENESS if rows >= FEW_SITES else STRANGENESS_OF_FEW
    strangeness = torch.full((rows,), bound - 0.01, dtype=torch.float64)
    strangeness[:strange] = bound
    traits, evidence = know_strangeness(strangeness), lean_to(1, 1, 1, 1, rows=rows)
    for each in (traits * 2, traits * 4):  # as much in each of several rounds
        assert (charge_strangers(evidence, each) is not None) == charged


def know_reputation(accused: float, judged: float, count: int, rows: int = 50) -> Tensor:
    """(n, 4) what is known of clients, the first of which were accused so often, of rounds with a charge."""
    traits = torch.tensor([0.0, 5, 0, judged], dtype=torch.float64).repeat(rows, 1)
    traits[:count, 2] = accused
    return traits


@pytest.mark.parametrize(
    ("accused", "judged", "charged"),
    [
        (REPUTATION, REPUTATION, True),
        (REPUTATION - 0.01, REPUTATION - 0.01, False),
        (REPUTATION, REPUTATION / MIN_ACCUSED_SHARE - 0.01, True),
        (REPUTATION, REPUTATION / MIN_ACCUSED_SHARE + 0.01, False),  # others were accused more often
    ],
)
def test_clients_are_charged_who_were_accused_in_most_of_their_recent_rounds(
    accused: float, judged: float, charged: bool
) -> None:
    charge = charge_reputation(lean_to(1, 1, 1, 1), know_reputation(accused, judged, 6))
    assert (charge is not None) == charged
    if charge:
        assert charge.ballot == "reputation"
        assert charge.suspects.nonzero().flatten().tolist() == list(range(6))
        assert charge.clarity == accused
        assert charge.words == "was accused in most of its recent rounds"


@pytest.mark.parametrize(
    ("count", "rows", "charged"),
    [(0, 50, False), (1, 50, True), (25, 50, True), (26, 50, False), (2, MIN_SPLIT_ROWS - 1, False)],
)
def test_how_many_may_have_such_a_reputation(count: int, rows: int, charged: bool) -> None:
    traits = know_reputation(2 * REPUTATION, 2 * REPUTATION, count, rows)
    assert (charge_reputation(lean_to(1, 1, 1, 1, rows=rows), traits) is not None) == charged


def test_pointing_as_earlier_suspects_did_is_strange(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, rows=8, infected=1)
    more = measure(gather(planted, recall(planted))) - measure(gather(planted))
    assert float(more[planted.infected]) > 3
    assert abs(float(more.median())) < 1


def test_no_deviation_decides_alone(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, rows=8)
    plain = measure(gather(planted))
    values = planted.updates.values.clone()
    values[3] *= 1e6  # only its length deviates
    grown = measure(gather(replace(planted, updates=planted.updates.replace_values(values))))
    assert float(grown[3] - plain[3]) < 12
    assert float(grown[3]) > float(plain[3]) + 3


def test_who_rewires_one_position_most_is_strange(make_image_round: Callable[..., Any]) -> None:
    evidence = gather(make_image_round(0, rows=8))
    shares = evidence.inputs[POSITIONS].numpy()
    expected = [max(shares[row, place] - np.median(shares[:, place]) for place in range(9)) for row in range(8)]
    assert measure_rewiring(evidence).tolist() == pytest.approx(expected)
    planted = make_image_round(0, rows=8, infected=1, rewired=3.0)
    assert int(measure(gather(planted)).argmax()) == int(planted.infected.nonzero())


def test_without_positions_all_inputs_of_the_last_hidden_layer_say_how_strange_a_row_is(
    make_round: Callable[..., Any],
) -> None:
    evidence = gather(make_round(0, rows=8))
    shares = evidence.inputs["hidden.weight"].numpy()
    expected = np.linalg.norm(shares - shares.mean(0), axis=1)
    np.testing.assert_allclose(measure_rewiring(evidence).numpy(), expected, atol=1e-12)
