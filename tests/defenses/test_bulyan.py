import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses import Context
from snowball.defenses.bulyan import Bulyan, average_near_median, pick_rows
from snowball.defenses.ops import compute_squared_distances
from snowball.errors import SettingError
from snowball.products import BLOCK_ELEMENTS
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

FIRST = Context(round=1)


def picks_of(order: Tensor | float) -> list[int]:
    """The picked rows, the first pick first."""
    places = torch.as_tensor(order)
    return [int(row) for row in places.argsort() if places[row] >= 0]


def picks_by_loops(rows: np.ndarray[Any, Any], tolerate: int) -> list[int]:
    left, picks = list(range(len(rows))), list[int]()
    while len(picks) < len(rows) - 2 * tolerate:
        scores = []
        for row in left:
            squares = sorted(((rows[row] - rows[other]) ** 2).sum() for other in left if other != row)
            scores.append(sum(squares[: max(len(left) - tolerate - 2, 1)]))
        picks.append(left.pop(int(np.argmin(scores))))
    return picks


def near_median_by_loops(rows: np.ndarray[Any, Any], count: int) -> list[float]:
    means = []
    for values in rows.T:
        median = np.median(values)
        means.append(np.mean(sorted(values, key=lambda value: (abs(value - median), value))[:count]))
    return means


def test_by_hand() -> None:
    updates = Updates.from_layers({"w": torch.tensor([1.0, 2, 3, 4, 6, 7, 100])[:, None]})
    verdict = Bulyan(1)(updates, Context(round=5))  # whose lots prefer 6 to 7
    assert [int(updates.values[row]) for row in picks_of(verdict.facts["order"])] == [3, 4, 2, 6, 1]
    assert verdict.elected.tolist() == [True, True, True, True, True, False, False]
    assert verdict.delta.item() == 3
    assert verdict.facts["tolerated"] == 1


@pytest.mark.parametrize(("clients", "tolerate"), [(3, 0), (7, 1), (9, 1), (11, 2), (14, 2), (30, 6)])
def test_both_stages_are_those_of_plain_loops(clients: int, tolerate: int) -> None:
    updates = make_toy_round(clients, infected=tolerate, dtype=torch.float64)
    order = FIRST.draw_lots(updates.clients).argsort()  # which decides between two that are each other's only neighbour
    rows = updates.values[order].numpy()
    verdict = Bulyan(tolerate)(updates, FIRST)
    picks = picks_by_loops(rows, tolerate)
    assert picks_of(verdict.facts["order"]) == order[picks].tolist()
    expected = near_median_by_loops(rows[picks], clients - 4 * tolerate)
    torch.testing.assert_close(verdict.delta, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-15)


def test_picking_needs_distances_only_and_leaves_them() -> None:
    squared = compute_squared_distances(make_toy_round(11).products())
    before = squared.clone()
    assert sorted(pick_rows(squared, 11, 0).tolist()) == list(range(11))
    assert torch.equal(squared, before)


@pytest.mark.parametrize(
    ("values", "count", "mean"),
    [
        ([1, 2, 3, 4, 6], 3, 3),
        ([6, 4, 3, 2, 1], 5, 3.2),
        ([-10, 0, 1, 2, 50], 3, 1),
        ([0, 4, 5, 6, 7, 8, 90], 3, 6),
        ([-9, 5, 6, 7, 8, 20], 4, 6.5),
        ([-3, -2, -1, 0, 10, 11, 12], 3, -1),
        ([-12, -11, -10, 0, 1, 2, 3], 3, 1),
        ([-1, -1, -1, 0, 1, 1, 1], 3, -2 / 3),  # the value at the median stays, though three equal ones lie below
        ([0, 0, 0, 0, 0, 7, 8], 5, 0),
    ],
)
def test_the_values_nearest_to_the_median_by_hand(values: list[float], count: int, mean: float) -> None:
    block = torch.tensor([values, values]).float()
    torch.testing.assert_close(average_near_median(block, count), torch.tensor([mean, mean], dtype=torch.float64))


def test_values_nearest_to_the_median_are_those_of_a_plain_loop_ties_and_all() -> None:
    rng = np.random.default_rng(0)
    for rows, count in ((7, 3), (8, 4), (12, 4), (15, 7)):
        for values in (rng.integers(-4, 5, (rows, 400)).astype(np.float64), rng.standard_normal((rows, 400))):
            expected = near_median_by_loops(values, count)
            found = average_near_median(torch.from_numpy(values.T.copy()), count)
            torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_one_coordinate_that_is_far_off_has_no_weight() -> None:
    updates = make_toy_round(23, infected=0, width=2000)
    tampered = updates.values.clone()
    tampered[:5, 7] = 0.5  # fifty deviations there, little as a whole
    verdict = Bulyan(5)(Updates(tampered, updates.examples, updates.clients, updates.layout), FIRST)
    assert verdict.elected[:5].any()
    assert verdict.delta[7].abs() <= updates.values[:, 7].abs().max()


def test_without_anybody_to_tolerate_it_is_the_plain_mean() -> None:
    updates = make_toy_round(8, dtype=torch.float64)
    torch.testing.assert_close(Bulyan(0)(updates, FIRST).delta, updates.values.mean(0))


def test_of_far_rows_only_the_last_pick_can_be_one_and_its_values_are_left_out() -> None:
    for distance in (20.0, 1e6, 1e14):
        updates = make_toy_round(23, infected=5, distance=distance)
        verdict, benign = Bulyan(5)(updates, FIRST), updates.values[:18]
        picks = picks_of(verdict.facts["order"])
        assert len(picks) == 13
        assert max(picks[:-1]) < 18
        assert (benign.amin(0) <= verdict.delta).all()
        assert (verdict.delta <= benign.amax(0)).all()


def test_many_blocks_of_columns() -> None:
    values = np.random.default_rng(0).standard_normal((8, BLOCK_ELEMENTS // 4))
    updates = Updates.from_layers({"w": values})
    verdict = Bulyan(1)(updates, FIRST)
    columns = slice(BLOCK_ELEMENTS // 8 - 20, BLOCK_ELEMENTS // 8 + 20)
    expected = near_median_by_loops(values[verdict.elected.numpy()][:, columns], 4)
    torch.testing.assert_close(verdict.delta[columns], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_huge_values_stay_finite(dtype: torch.dtype) -> None:
    huge = min(torch.finfo(dtype).max, 1e150)
    values = torch.tensor([huge, huge, huge, huge, -huge, -huge, 0], dtype=dtype)[:, None]
    verdict = Bulyan(1)(Updates.from_layers({"w": values}), FIRST)
    assert verdict.delta.dtype == dtype
    assert verdict.delta.item() == values[0].item()


def test_row_order_does_not_matter_to_the_bit() -> None:
    updates, order = make_toy_round(19), torch.randperm(19, generator=torch.Generator().manual_seed(0))
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples[order], clients, updates.layout)
    here, there = Bulyan()(updates, FIRST), Bulyan()(moved, FIRST)
    assert torch.equal(here.delta, there.delta)
    assert torch.equal(torch.as_tensor(here.facts["order"]), torch.as_tensor(there.facts["order"]))


@pytest.mark.parametrize("defense", [Bulyan(0.0), Bulyan(1.0)])
def test_every_check_is_passed(defense: Bulyan) -> None:
    check_defense(defense)


def test_a_share_is_cut_to_what_the_rows_allow() -> None:
    found = [Bulyan()(make_toy_round(rows), FIRST).facts["tolerated"] for rows in (1, 2, 6, 7, 10, 11, 50, 51)]
    assert found == [0, 0, 0, 1, 1, 2, 10, 11]
    assert torch.equal(Bulyan(1.0)(make_toy_round(1), FIRST).delta, make_toy_round(1).values[0])


def test_a_number_that_the_rows_do_not_allow_is_refused() -> None:
    with pytest.raises(SettingError, match="tolerating 2 needs over 10 updates, got 10"):
        Bulyan(2)(make_toy_round(10), FIRST)
    assert Bulyan(2)(make_toy_round(11), FIRST).elected.sum() == 7


@pytest.mark.parametrize("tolerate", [-1, -0.1, 1.5, float("nan")])
def test_settings_that_no_round_can_satisfy_are_refused(tolerate: int | float) -> None:
    with pytest.raises(SettingError, match=re.escape("tolerate must be a share in [0, 1] or a whole number, got")):
        Bulyan(tolerate)
