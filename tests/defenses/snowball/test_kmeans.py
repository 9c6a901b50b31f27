import pytest
import torch

from snowball.defenses.snowball.kmeans import bound_rounding, mark_members, measure_scatter


def test_members_are_marked_with_one() -> None:
    marked = mark_members(torch.tensor([[0, 2, 0]]), 3, torch.float64)
    assert marked.tolist() == [[[1, 0, 1], [0, 0, 0], [0, 1, 0]]]


def test_scatter_is_about_the_mean_wherever_the_rows_are() -> None:
    rows = torch.tensor([[1.0], [2.0], [4.0], [5.0]], dtype=torch.float64)
    assert float(measure_scatter(rows @ rows.T)) == pytest.approx(10)
    assert float(measure_scatter(rows @ rows.T / 100)) == pytest.approx(0.1)


def test_what_rounding_explains_grows_with_the_rows() -> None:
    limits = torch.finfo(torch.float64)
    assert bound_rounding(torch.eye(8, dtype=torch.float64)) == pytest.approx(8 * limits.eps, rel=1e-12)
    assert bound_rounding(torch.zeros(8, 8, dtype=torch.float64)) == limits.tiny
