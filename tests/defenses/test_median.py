import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses import Context
from snowball.defenses.median import Median
from snowball.defenses.ops import compute_medians, sort_rows
from snowball.defenses.trimmed_mean import TrimmedMean
from snowball.errors import SettingError
from snowball.products import BLOCK_ELEMENTS
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

FIRST = Context(round=1)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def column(*values: float, dtype: torch.dtype = torch.float32) -> Updates:
    return Updates.from_layers({"w": torch.tensor(values, dtype=dtype)[:, None]})


def trimmed_by_hand(values: np.ndarray[Any, Any], trim: int) -> Tensor:
    kept = np.sort(values.astype(np.float64), axis=0)[trim : len(values) - trim]
    return torch.from_numpy(kept.mean(0).astype(values.dtype))


def test_by_hand() -> None:
    updates = column(100, 3, 1, 4, 2)
    assert Median()(updates, FIRST).delta.item() == 3
    assert TrimmedMean(1)(updates, FIRST).delta.item() == 3
    assert TrimmedMean()(updates, FIRST).delta.item() == 3
    assert TrimmedMean(0)(updates, FIRST).delta.item() == 22


def test_of_an_even_number_the_middle_two_are_averaged() -> None:
    assert Median()(column(100, 3, 1, 4), FIRST).delta.item() == 3.5
    assert Median()(column(2, 3), FIRST).delta.item() == 2.5


def test_everybody_has_a_say_and_examples_have_none() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0], [2.0], [9.0], [10.0]])}, examples=[1, 1, 1, 1000])
    for defense, result in ((Median(), 5.5), (TrimmedMean(1), 5.5), (TrimmedMean(0), 5.5)):
        verdict = defense(updates, FIRST)
        assert verdict.delta.item() == result
        assert verdict.elected.all()


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 31])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_column_is_numpys(rows: int, dtype: torch.dtype) -> None:
    updates = make_toy_round(rows, infected=0, dtype=dtype)
    values = updates.values.numpy()
    expected = torch.from_numpy(np.median(values.astype(np.float64), axis=0)).to(dtype)
    torch.testing.assert_close(Median()(updates, FIRST).delta, expected, rtol=1e-7, atol=0)
    for trim in range((rows + 1) // 2):
        delta = TrimmedMean(trim)(updates, FIRST).delta
        torch.testing.assert_close(delta, trimmed_by_hand(values, trim), rtol=1e-6, atol=1e-9)


def test_many_blocks_of_columns() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((9, BLOCK_ELEMENTS // 4)).astype(np.float32)
    updates = Updates.from_layers({"w": values})
    assert torch.equal(Median()(updates, FIRST).delta, torch.from_numpy(np.median(values, axis=0)))
    torch.testing.assert_close(TrimmedMean(2)(updates, FIRST).delta, trimmed_by_hand(values, 2))


def test_trimming_all_but_the_middle_is_the_median() -> None:
    for rows in (5, 6):
        updates = make_toy_round(rows)
        assert torch.equal(TrimmedMean(2)(updates, FIRST).delta, Median()(updates, FIRST).delta)


def test_a_share_is_rounded_down_and_cut_to_what_leaves_something() -> None:
    found = [TrimmedMean(0.2)(make_toy_round(rows), FIRST).facts["trimmed"] for rows in (1, 4, 5, 9, 10, 50)]
    assert found == [0, 0, 1, 1, 2, 10]
    assert [TrimmedMean(1.0)(make_toy_round(rows), FIRST).facts["trimmed"] for rows in (1, 2, 3, 4, 5)] == [
        0,
        0,
        1,
        1,
        2,
    ]
    assert TrimmedMean(0.29)(make_toy_round(100), FIRST).facts["trimmed"] == 29  # 0.29 * 100 is a little less


@pytest.mark.parametrize("dtype", FLOATS)
def test_huge_values_stay_finite(dtype: torch.dtype) -> None:
    huge = min(torch.finfo(dtype).max, 1e150)
    updates = column(huge, huge, huge, huge, dtype=dtype)
    for defense in (Median(), TrimmedMean(1), TrimmedMean(0)):
        verdict = defense(updates, FIRST)
        assert verdict.delta.dtype == dtype
        assert torch.equal(verdict.delta, updates.values[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_reduced_in_more(dtype: torch.dtype) -> None:
    updates = column(*[1.0] * 300, *[2.0] * 300, dtype=dtype)
    assert Median()(updates, FIRST).delta.item() == 1.5
    assert TrimmedMean(0.1)(updates, FIRST).delta.item() == 1.5


def test_means_are_taken_in_float64() -> None:
    updates = column(1e8, *[1.0] * 8, -1e8)
    assert TrimmedMean(0)(updates, FIRST).delta.item() == pytest.approx(0.8, rel=1e-7)


def test_sorting_leaves_the_block_as_it_is() -> None:
    block = torch.tensor([[3.0, 1.0, 2.0]])
    assert sort_rows(block).tolist() == [[1, 2, 3]]
    assert block.tolist() == [[3, 1, 2]]
    assert compute_medians(sort_rows(block)).tolist() == [2]


@pytest.mark.parametrize("defense", [TrimmedMean(0.0), TrimmedMean(1.0)])
def test_every_check_is_passed(defense: TrimmedMean) -> None:
    check_defense(defense)


@pytest.mark.parametrize("defense", [Median(), TrimmedMean(0.1)])
def test_row_order_does_not_matter_to_the_bit(defense: Median | TrimmedMean) -> None:
    updates, order = make_toy_round(), torch.randperm(20, generator=torch.Generator().manual_seed(0))
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples[order], clients, updates.layout)
    assert torch.equal(defense(updates, FIRST).delta, defense(moved, FIRST).delta)


def test_a_number_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="trimming 3 at each end needs over 6 updates, got 6"):
        TrimmedMean(3)(make_toy_round(6), FIRST)
    assert TrimmedMean(3)(make_toy_round(7), FIRST).facts["trimmed"] == 3


@pytest.mark.parametrize("trim", [-1, -0.1, 1.5, float("nan")])
def test_settings_that_no_round_can_satisfy_are_refused(trim: int | float) -> None:
    with pytest.raises(SettingError, match=re.escape("trim must be a share in [0, 1] or a whole number, got")):
        TrimmedMean(trim)
