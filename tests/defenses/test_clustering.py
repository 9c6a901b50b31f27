import numpy as np
import pytest
import torch
from sklearn.metrics import pairwise

from snowball.defenses.clustering import NOISE, cluster_rows, compute_cosine_distances, select_largest_cluster
from snowball.updates import Updates

POINTS = torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 40.0])
GROUPS = [0, 0, 0, 1, 1, 1, NOISE]


def on_a_line(points: torch.Tensor) -> torch.Tensor:
    return (points[:, None] - points).abs().double()


@pytest.mark.parametrize("scale", [1e-12, 1, 1e24])
def test_two_groups_and_a_stranger(scale: float) -> None:
    distances = on_a_line(POINTS)
    distances *= scale
    before = distances.clone()
    assert cluster_rows(distances, 3, 1).tolist() == GROUPS
    assert torch.equal(distances, before)


def test_one_cluster_alone_is_found_where_it_may_be() -> None:
    distances = on_a_line(POINTS)
    assert cluster_rows(distances, 4, 1, single=True).tolist() == [0, 0, 0, 0, 0, 0, NOISE]
    assert cluster_rows(distances, 4, 1).tolist() == [NOISE] * 7


def test_rows_on_top_of_each_other_are_one_cluster() -> None:
    distances = on_a_line(torch.zeros(5))
    assert cluster_rows(distances, 3, 1, single=True).tolist() == [0] * 5


def test_one_row_is_no_cluster() -> None:
    assert cluster_rows(on_a_line(torch.zeros(1)), 2, 1).tolist() == [NOISE]


def test_distances_that_rounding_has_made_uneven_are_taken() -> None:
    distances = on_a_line(POINTS)
    distances[0, 1] += 1e-3
    assert cluster_rows(distances, 3, 1).tolist() == GROUPS


def test_the_largest_cluster() -> None:
    assert select_largest_cluster(torch.tensor([1, 0, 1, -1, -1, -1])).tolist() == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]
    assert select_largest_cluster(torch.tensor([1, 0, 1, 0])).tolist() == [False, True, False, True]
    assert select_largest_cluster(torch.tensor([-1, -1])).all()


def test_cosine_distances_are_those_of_scikit_learn() -> None:
    rows = torch.randn(9, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    point = torch.linspace(-1, 1, 30)
    distances = compute_cosine_distances(Updates.from_layers({"w": rows}), point)
    np.testing.assert_allclose(distances, pairwise.cosine_distances(rows - point.double()), atol=1e-13)


def test_rows_that_point_one_way_are_at_no_distance_and_a_row_of_zeros_at_one() -> None:
    direction = torch.randn(30, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([length * direction for length in (1.0, 0.3, 1e-6, 1e9, -1.0, 0.0)])
    distances = compute_cosine_distances(Updates.from_layers({"w": rows.double()}), torch.zeros(30))
    assert distances[:3, :3].tolist() == [[0.0] * 3] * 3
    assert distances[0].tolist() == [0, 0, 0, 0, 2, 1]
    assert distances[5].tolist() == [1, 1, 1, 1, 1, 0]
