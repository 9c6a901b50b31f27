from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from made_evidence import gather, lean_to
from torch import Tensor

from snowball.defenses.snowball_plus.ballots import (
    CAUTION,
    CLEAR_POSITION,
    MIN_SPLIT_ROWS,
    POSITION_NOW,
    RECORD_KEPT,
    REPEATED_POSITION,
    TRIGGER_POSITIONS,
    charge_position,
    describe_position,
    measure_positions,
    update_record,
    weigh_by_positions,
)
from snowball.defenses.snowball_plus.evidence import (
    POSITIONS,
    Evidence,
    compare_at_positions,
    share_energy,
)
from snowball.rng import stream


def place(vectors: Tensor) -> Evidence:
    """Evidence of nothing but (n, positions, w) weights at the positions of an image."""
    products = torch.einsum("npw,mpw->pnm", vectors, vectors)
    lengths = vectors.flatten(1).norm(dim=1)
    shares = share_energy(vectors.square().sum(2))
    at_positions = compare_at_positions(products, lengths)
    return replace(lean_to(0, 0, 0, 0, rows=len(vectors)), inputs={POSITIONS: shares}, positions=at_positions)


def scatter_weights(seed: int, rows: int = 50) -> Tensor:
    """(n, 6, 8) weights of noise at six positions."""
    return torch.randn(rows, 6, 8, generator=stream(seed, "positions"), dtype=torch.float64)


def test_who_rewires_a_leading_position_weighs_less_until_it_is_charged() -> None:
    vectors = scatter_weights(1)
    vectors[:10, 3] += 3
    evidence = place(vectors)
    measured = require_positions(evidence)
    for round in (1, 4, 30):  # unlike a crowd, a position may become clear late
        record = (1 - RECORD_KEPT**round) * torch.tensor([0.0, 9, 0, 2, 0, 0], dtype=torch.float64)
        weights = weigh_by_positions(evidence, measured * torch.tensor([0, 0, 0, 1, 0, 0]), record, round)
        assert weights.tolist() == pytest.approx([3.0**-CAUTION] * 10 + [1.0] * 40)


def test_all_weigh_alike_where_no_position_leads_or_none_is_known() -> None:
    vectors = scatter_weights(1)
    vectors[:10, 3] += 3
    evidence, record = place(vectors), torch.full((6,), 2.0, dtype=torch.float64)
    measured = require_positions(evidence)
    for weights in (
        weigh_by_positions(evidence, torch.zeros_like(measured), record, 1),
        weigh_by_positions(evidence, measured, None, 1),
        weigh_by_positions(evidence, None, record, 1),
        weigh_by_positions(replace(evidence, positions=None), measured, record, 1),
    ):
        assert weights.dtype == torch.float64
        assert weights.tolist() == [1] * 50


@pytest.mark.parametrize(("group", "plausible"), [(2, False), (4, False), (5, True), (24, True)])
def test_a_position_leads_if_a_group_that_may_be_infected_rewires_it(group: int, plausible: bool) -> None:
    vectors = scatter_weights(group)
    vectors[:group, 3] += 3
    vectors[:, 4] = 0
    evidence = place(vectors)
    measured = require_positions(evidence)
    assert (float(measured[3]) > CLEAR_POSITION) == plausible
    assert float(measured[4]) == 0
    assert int((measured > 0).sum()) <= TRIGGER_POSITIONS
    assert evidence.positions is not None
    suspects = describe_position(evidence.positions, 3, 1.0, 1.0).suspects
    assert not plausible or torch.equal(suspects, mark_first(group))


def require_positions(evidence: Evidence) -> Tensor:
    """(positions,) the leads of evidence that has positions."""
    measured = measure_positions(evidence)
    assert measured is not None
    return measured


def mark_first(count: int, rows: int = 50) -> Tensor:
    """(n,) the first rows."""
    return torch.arange(rows) < count


def test_a_position_counts_as_much_as_direction_and_energy_allow() -> None:
    turned, louder, both = (scatter_weights(1) for _ in range(3))
    sign = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64)
    turned[:, 3] = 3 * sign + 0.3 * turned[:, 3]
    turned[:12, 3] *= -1  # as much energy as the others, in another direction
    louder[:12, 3] *= 4  # more energy, in no direction
    both[:12, 3] += 3 * sign
    leads = [
        float(measured[3])
        for each in (turned, louder, both)
        if (measured := measure_positions(place(each))) is not None
    ]
    assert max(leads[:2]) < POSITION_NOW < CLEAR_POSITION < leads[2]


def test_a_group_that_differs_at_many_positions_leads_at_none() -> None:
    vectors = scatter_weights(2)
    vectors[:12] += 3
    assert float(require_positions(place(vectors)).max()) < POSITION_NOW


def test_a_model_without_positions_has_none(make_round: Callable[..., Any]) -> None:
    assert measure_positions(gather(make_round(0))) is None


def set_position(position: int, value: float) -> Tensor:
    """(6,) zeros but for a position."""
    return value * (torch.arange(6) == position).double()


@pytest.mark.parametrize(
    ("now", "record", "charged"),
    [
        (set_position(4, CLEAR_POSITION), set_position(4, 1.0), 4),
        (set_position(4, CLEAR_POSITION), set_position(2, 1.0), 4),
        (set_position(4, CLEAR_POSITION - 0.01), set_position(4, 1.0), None),
        (set_position(2, POSITION_NOW), set_position(2, REPEATED_POSITION), 2),
        (set_position(2, POSITION_NOW), set_position(2, REPEATED_POSITION - 0.01), None),
        (set_position(2, POSITION_NOW - 0.01), set_position(2, REPEATED_POSITION), None),  # attackers may pause
        (set_position(4, POSITION_NOW), set_position(2, REPEATED_POSITION), None),  # this is another position
        (set_position(4, CLEAR_POSITION), set_position(2, REPEATED_POSITION), 4),  # what is clear now goes first
        (set_position(2, POSITION_NOW) + set_position(4, POSITION_NOW + 0.1), set_position(2, REPEATED_POSITION), 2),
    ],
)
def test_a_position_is_charged_if_it_is_clear_now_or_has_been_and_shows(
    now: Tensor, record: Tensor, charged: int | None
) -> None:
    vectors = scatter_weights(0)
    vectors[:12, 4] += 3
    vectors[20:29, 2] += 3
    charge = charge_position(place(vectors), now, record, False)
    suspects = {None: None, 4: list(range(12)), 2: list(range(20, 29))}[charged]
    assert (charge.suspects.nonzero().flatten().tolist() if charge else None) == suspects
    if charge:
        assert charge.ballot == "position"
        assert charge.words.startswith(f"rewires position {charged} with {len(suspects or []) - 1} others, separation ")
        assert charge.clarity == float((now if charged == 4 else record).max())


def test_no_position_is_charged_of_few_rows_or_where_there_is_none() -> None:
    vectors, few = scatter_weights(0), MIN_SPLIT_ROWS - 1
    vectors[:5, 4] += 3
    now = set_position(4, CLEAR_POSITION)
    assert charge_position(place(vectors), now, now, False) is not None
    assert charge_position(place(vectors[:few]), now, now, False) is None
    assert charge_position(place(vectors), None, now, False) is None
    assert charge_position(place(vectors), now, None, False) is None


@pytest.mark.parametrize("agrees", [True, False])
def test_after_an_accusation_only_a_clear_position_may_point_elsewhere(agrees: bool) -> None:
    vectors = scatter_weights(0)
    vectors[:12, 4] += 3
    direction = mark_first(12).double() if agrees else torch.arange(50.0, dtype=torch.float64)
    evidence = replace(place(vectors), recalled_directions={"fc": direction})
    repeated = (set_position(4, POSITION_NOW), set_position(4, REPEATED_POSITION))
    assert charge_position(evidence, *repeated, False) is not None
    assert (charge_position(evidence, *repeated, True) is not None) == agrees
    assert charge_position(evidence, set_position(4, CLEAR_POSITION), set_position(4, 0.0), True) is not None


@pytest.mark.parametrize("seed", range(5))
def test_those_who_rewire_one_position_are_found(make_image_round: Callable[..., Any], seed: int) -> None:
    for position in (0, 5, 8):
        planted = make_image_round(seed, infected=12, rewired=2.5, position=position)
        evidence = gather(planted)
        measured = measure_positions(evidence)
        assert measured is not None
        charge = charge_position(evidence, measured, update_record(None, measured), False)
        assert charge is not None
        assert f"position {position} " in charge.words
        assert torch.equal(charge.suspects, planted.infected)


@pytest.mark.parametrize("seed", range(5))
def test_no_position_is_charged_in_rounds_of_noise(make_image_round: Callable[..., Any], seed: int) -> None:
    record: Tensor | None = None
    for number in range(8):
        evidence = gather(make_image_round(100 * seed + number))
        measured = measure_positions(evidence)
        assert measured is not None
        record = update_record(record, measured)
        assert charge_position(evidence, measured, record, False) is None
