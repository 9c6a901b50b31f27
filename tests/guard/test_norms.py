"""Norms of models and of their changes: how exact they are, and that a finite one proves finite numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from snowball.guard import norms
from snowball.guard.norms import measure_norm, sum_squared_changes

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BLOCK = 64


@pytest.fixture(autouse=True)
def use_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "ROW_BLOCK_ELEMENTS", BLOCK)


def draw(size: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=30, deadline=None, database=None)
@given(size=st.integers(0, 3 * BLOCK + 1), seed=st.integers(0, 99))
def test_a_change_is_measured_in_all_blocks(dtype: torch.dtype, size: int, seed: int) -> None:
    sent, own = draw(size, dtype, seed), draw(size, dtype, seed + 100)
    exact = float((sent.double() - own.double()).square().sum())
    assert sum_squared_changes(sent, own) == pytest.approx(exact, rel=1e-5)
    assert measure_norm({"w": sent}, {"w": own}) == pytest.approx(math.sqrt(exact), rel=1e-12)
    assert measure_norm({"w": own, "count": torch.tensor(7)}) == pytest.approx(float(own.double().norm()), rel=1e-12)


def test_shapes_and_memory_order_do_not_matter() -> None:
    sent, own = draw(200, torch.float32, 0).view(10, 20), draw(200, torch.float32, 1).view(10, 20)
    across = sum_squared_changes(sent.T.contiguous().T, own)
    assert across == sum_squared_changes(sent, own)
    assert sum_squared_changes(torch.tensor(3.0), torch.tensor(1.0)) == 4


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, BLOCK, 2 * BLOCK])
def test_what_is_not_finite_has_no_finite_norm(dtype: torch.dtype, number: float, place: int) -> None:
    sent = draw(2 * BLOCK + 1, dtype, 0)
    sent[place] = number
    assert not math.isfinite(sum_squared_changes(sent, torch.zeros_like(sent)))


def test_squares_that_overflow_float32_are_added_up_in_float64() -> None:
    sent = torch.full((3,), 2e30)
    assert sum_squared_changes(sent, torch.zeros(3)) == pytest.approx(1.2e61)
    assert sum_squared_changes(torch.tensor([3e38]), torch.tensor([-3e38])) == pytest.approx(3.6e77)
    assert sum_squared_changes(torch.tensor([1e200], dtype=torch.float64), torch.zeros(1).double()) == math.inf


def test_tiny_changes_of_buffers_are_not_lost() -> None:
    assert measure_norm({"w": torch.full((4,), 1e-30)}) == pytest.approx(2e-30)


def test_the_error_of_a_long_block_is_far_below_every_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sent = 1 + draw(2 * norms.ROW_BLOCK_ELEMENTS + 5, torch.float32, 0)
    exact = float(sent.double().square().sum())
    assert sum_squared_changes(sent, torch.zeros_like(sent)) == pytest.approx(exact, rel=1e-3)


def test_blocks_are_added_up_exactly() -> None:
    sent = torch.zeros(BLOCK + 1)
    sent[0], sent[BLOCK] = 1e4, 1
    assert float(sum_squared_changes(sent, torch.zeros_like(sent))) == 1e8 + 1  # no number of float32
