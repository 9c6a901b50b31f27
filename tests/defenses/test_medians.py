"""Medians of columns by a network of comparisons."""

from itertools import product

import numpy as np
import pytest
import torch

from snowball.defenses import Context, Median
from snowball.defenses import medians as module
from snowball.defenses.medians import MAX_NETWORK_ROWS, find_medians_by_network, list_comparisons
from snowball.updates import Updates


@pytest.mark.parametrize("rows", range(1, MAX_NETWORK_ROWS + 1))
def test_the_middle_of_all_zeros_and_ones_is_found_so_that_of_all_numbers_is(rows: int) -> None:
    columns = np.array(list(product((0.0, 1.0), repeat=rows)), np.float32).T  # (rows, 2 ** rows)
    ones = columns.sum(0)
    expected = (2 * ones > rows) + 0.5 * (2 * ones == rows)
    np.testing.assert_array_equal(find_medians_by_network(torch.from_numpy(columns)).numpy(), expected)


@pytest.mark.parametrize("rows", [1, 2, 5, 10, 15, 16, 17])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_medians_are_numpys_whatever_the_type(rows: int, dtype: torch.dtype) -> None:
    values = torch.randn(rows, 301, generator=torch.Generator().manual_seed(rows)).to(dtype)
    values[:, 7] = 3e38 if dtype in (torch.float32, torch.bfloat16) else 3
    given = values.clone()
    expected = torch.from_numpy(np.median(values.double().numpy(), axis=0)).to(dtype)
    assert torch.equal(Median()(Updates.from_matrix(values), Context(round=1)).delta, expected)
    assert torch.equal(values, given)


@pytest.mark.parametrize("rows", [4, 9, 10])
def test_a_network_finds_what_sorting_finds(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = Updates.from_matrix(torch.randn(rows, 1000, generator=torch.Generator().manual_seed(rows)))
    by_network = module.find_column_medians(updates)
    monkeypatch.setattr(module, "MAX_NETWORK_ROWS", 0)
    assert torch.equal(module.find_column_medians(updates), by_network)


def test_comparisons_that_the_median_does_not_depend_on_are_left_out() -> None:
    assert list_comparisons(1) == ()
    assert list_comparisons(2) == ((0, 1, True, True),)
    # Of three rows, the last two comparisons need to keep only what can still be in the middle.
    assert [step.keeps_lower + step.keeps_upper for step in list_comparisons(3)] == [2, 1, 1]
    assert len(list_comparisons(10)) < len(list(module.iterate_network(10)))
