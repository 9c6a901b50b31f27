"""Few sites: deviations of a site that alone holds a class, and those of an attacker."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_evidence import gather, lean_to
from torch import Tensor

from snowball.defenses import Context, SnowballPlus
from snowball.defenses.snowball_plus import method
from snowball.defenses.snowball_plus.ballots import MIN_SPLIT_ROWS
from snowball.defenses.snowball_plus.evidence import POSITIONS, Evidence
from snowball.defenses.snowball_plus.few import (
    CONTRADICTION,
    FIRST_ROUND_FACTOR,
    MAX_UNTRACED,
    OVERLONG,
    STRANGENESS_OF_FEW,
    TRIGGER_LEAD,
    find_contradicting,
    find_overlong,
    find_traced,
    limit_untraced,
    measure_leads,
    measure_strangeness,
)
from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates

SHARES = torch.tensor(
    [
        [0.30, 0.30, 0.30, 0.30, 0.30, 0.30],
        [0.32, 0.28, 0.31, 0.30, 0.29, 0.30],
        [0.30, 0.50, 0.42, 0.31, 0.36, 0.20],
        [0.28, 0.30, 0.45, 0.45, 0.43, 0.41],
        [0.30, 0.30, 0.30, 0.30, 0.30, 0.30],
    ],
    dtype=torch.float64,
)
"""Of five sites, the third rewires the second position most; the fourth rewires four positions alike."""

STRANGE = torch.tensor([9.0, -4.0, 9.0, 2.0, 2.6], dtype=torch.float64)
"""Sums of deviations."""


EQUAL = torch.zeros(5, dtype=torch.float64)
"""Logarithms of example counts of five sites of one size."""


def make_evidence(shares: Tensor | None = SHARES, fits: list[float] | None = None) -> Evidence:
    """Evidence of sites that all lean to the second class, with these shares and cosines with the model."""
    evidence = lean_to(0, 5, 0, 0, rows=5)
    known = None if fits is None else torch.tensor(fits, dtype=torch.float64)[:, None].expand(5, 4)
    return replace(evidence, inputs={} if shares is None else {POSITIONS: shares}, fits=known)


def make_traits(mean: float, accused: float) -> Tensor:
    """Traits of five sites after five rounds."""
    return torch.tensor([5 * mean, 5, accused, accused], dtype=torch.float64).repeat(5, 1)


def test_a_position_leads_by_how_much_it_exceeds_the_fourth_beyond_the_other_sites() -> None:
    excess = SHARES.numpy() - np.median(SHARES.numpy(), axis=0)
    expected = [sorted(row)[-1] - sorted(row)[-4] for row in excess]
    assert measure_leads(SHARES).tolist() == pytest.approx(expected)
    assert expected == pytest.approx([0, 0.02, 0.19, 0.04, 0])
    assert find_traced(make_evidence()).tolist() == [False, False, True, False, False]
    assert expected[2] > TRIGGER_LEAD > expected[3]


@pytest.mark.parametrize(
    ("fits", "contradicting"),
    [
        ([-0.2, 0.3, 0.3, 0.2, 0.1], [True, False, False, False, False]),
        ([-0.2, -0.1, 0.3, 0.2, 0.1], [True, True, False, False, False]),
        ([0.0, 0.3, 0.3, 0.2, -0.09], [False] * 5),  # one who alone holds a class
        ([-0.2, 0.0, 0.05, 0.0, 0.3], [False] * 5),  # the model knows hardly any class yet
    ],
)
def test_only_a_model_that_knows_the_classes_is_contradicted(fits: list[float], contradicting: list[bool]) -> None:
    evidence = make_evidence(torch.full((5, 6), 0.3, dtype=torch.float64), fits)
    assert find_contradicting(evidence).tolist() == contradicting
    assert find_traced(evidence).tolist() == contradicting
    assert not find_contradicting(make_evidence()).any()


def test_the_class_that_a_site_raises_most_is_compared_with_the_model() -> None:
    evidence = make_evidence(fits=[0.3] * 5)
    fits = torch.full((5, 4), 0.3, dtype=torch.float64)
    fits[0, 0] = fits[1, 1] = -CONTRADICTION
    assert find_contradicting(replace(evidence, fits=fits)).tolist() == [False, True, False, False, False]


def test_deviations_without_a_trace_leave_a_site_trusted() -> None:
    limited = limit_untraced(STRANGE, make_evidence(), make_traits(0, 0), EQUAL)
    assert limited.tolist() == [MAX_UNTRACED, -4, 9, 2, MAX_UNTRACED]
    new = limit_untraced(STRANGE, make_evidence(), torch.zeros(5, 4, dtype=torch.float64), EQUAL)
    assert torch.equal(limited, new)


def test_an_overlong_update_that_suffices_for_a_charge_counts_in_the_first_round() -> None:
    bound = FIRST_ROUND_FACTOR * STRANGENESS_OF_FEW
    strange = torch.tensor([bound, bound - 0.1, bound, bound, 0], dtype=torch.float64)
    lengths = torch.tensor([OVERLONG, OVERLONG, OVERLONG - 0.01, OVERLONG, 1], dtype=torch.float64)
    evidence = replace(make_evidence(torch.full((5, 6), 0.3, dtype=torch.float64)), lengths=lengths)
    traits = make_traits(0, 0)
    traits[:3] = 0
    assert find_overlong(evidence, EQUAL).tolist() == [False] * 5  # four of five have that length: it is usual
    alone = [replace(evidence, lengths=torch.where(torch.arange(5) == row, lengths, 1.0)) for row in range(4)]
    counted = [limit_untraced(strange, each, traits, EQUAL)[row].item() for row, each in enumerate(alone)]
    assert counted == [bound, MAX_UNTRACED, MAX_UNTRACED, MAX_UNTRACED]  # strange enough, too little, too short, known


@pytest.mark.parametrize(("accused", "most"), [(0.99, MAX_UNTRACED), (1, 7.5), (3, 7.5)])
def test_an_accused_site_does_not_add_to_its_own_record_without_a_trace(accused: float, most: float) -> None:
    limited = limit_untraced(STRANGE, make_evidence(), make_traits(7.5, accused), EQUAL)
    assert limited.tolist() == [most, -4, 9, 2, min(2.6, most)]


def test_without_positions_all_deviations_count() -> None:
    evidence = make_evidence(None, [0.3] * 5)
    assert torch.equal(limit_untraced(STRANGE, evidence, make_traits(0, 0), EQUAL), STRANGE)


@pytest.mark.parametrize("rows", [MIN_SPLIT_ROWS - 1, MIN_SPLIT_ROWS, 50])
def test_deviations_are_limited_with_few_sites_only(make_image_round: Callable[..., object], rows: int) -> None:
    planted = make_image_round(0, rows=rows, infected=0)
    evidence = gather(planted)
    updates: Updates = planted.updates  # type: ignore[attr-defined]
    verdict = SnowballPlus()(updates, Context(round=1, base=planted.base))  # type: ignore[attr-defined]
    assert verdict.state is not None
    kept = torch.stack([verdict.state["clients"][client]["traits"][0] for client in updates.clients])
    deviations = measure_strangeness(evidence, updates.examples.double().log())
    sizes = updates.examples.double().log()
    limited = limit_untraced(deviations, evidence, torch.zeros(rows, 4, dtype=torch.float64), sizes)
    assert not torch.equal(deviations, limited)
    assert torch.equal(kept, limited if rows < MIN_SPLIT_ROWS else deviations)


LAYOUT = Layout(("conv.weight", "hidden.weight", "last.weight"), ((4, 1, 3, 3), (64, 36), (10, 64)))
SITES, ROUNDS = tuple("abcde"), 24
HIDDEN, LAST = LAYOUT.columns["hidden.weight"], LAYOUT.columns["last.weight"]


def make_row(*name: str | int) -> Tensor:
    """Random numbers for each weight."""
    return torch.randn(LAYOUT.width, generator=stream(7, *name))


def run_federation(own: Tensor) -> tuple[list[list[str]], Tensor]:
    """Train five sites, each of which pulls the model to its optimum; return who was left out, and the model's error.

    The first site's optimum differs from the common one by `own`. The error is how much of that the model lacks at the
    end, as a share.
    """
    common = make_row("common")
    optima = [common + 0.1 * make_row("site", site) + (own if site == "a" else 0) for site in SITES]
    model, state, left_out = common + 0.1 * make_row("start"), None, []
    for round in range(1, ROUNDS + 1):
        steps = [0.3 * (each - model) + 0.02 * make_row("noise", round, i) for i, each in enumerate(optima)]
        updates = Updates(torch.stack(steps), torch.full((5,), 400.0), SITES, LAYOUT)
        verdict = SnowballPlus()(updates, Context(round=round, rounds=ROUNDS, base=model, state=state))
        left_out.append([site for site, elected in zip(SITES, verdict.elected.tolist(), strict=True) if not elected])
        model, state = model + verdict.delta, verdict.state
    lacking = 1 - (model - common) @ own / own.square().sum()
    return left_out, lacking


def make_lone_class() -> Tensor:
    """What a class adds to the optimum that only one site holds.

    It undoes a part of the hidden layers, at all positions alike, and raises an output on features of its own.
    """
    own = 0.2 * make_row("class") - 0.4 * make_row("common")
    own[LAST] = 0
    own[LAST].view(10, 64)[3] = 0.3 + 0.2 * make_row("features")[LAST].view(10, 64)[3]
    return own


def test_a_site_that_alone_holds_a_class_is_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out, lacking = run_federation(make_lone_class())
    assert left_out == [[]] * ROUNDS
    assert lacking < 0.92  # the mean of the optima lacks 0.8, and the longest steps are clipped

    monkeypatch.setattr(method, "limit_untraced", lambda strangeness, *_: strangeness)
    accused, lacking = run_federation(make_lone_class())
    assert accused[-10:] == [["a"]] * 10
    assert lacking > 0.95


def test_a_site_that_rewires_one_position_is_left_out() -> None:
    own = make_lone_class()
    placed = own[HIDDEN].view(64, 4, 9)
    placed[:, :, 4] += 2
    left_out, lacking = run_federation(own)
    assert left_out[-10:] == [["a"]] * 10
    assert lacking > 0.95
