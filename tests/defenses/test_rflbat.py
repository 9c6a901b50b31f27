import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import cosine_similarity

from snowball.defenses import Context
from snowball.defenses.rflbat import RFLBAT, choose_cluster, mark_near
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import make_toy_round
from snowball.updates import Updates


def test_points_far_from_all_others_by_hand() -> None:
    """Five points lie 10 from the last one, whose sum is 50, five times the median."""
    points = torch.tensor([[0.0, 0]] * 5 + [[6, 8]]).double()
    assert mark_near(points, 5.0).all()
    assert mark_near(points, 4.9).tolist() == [True] * 5 + [False]
    assert mark_near(torch.zeros(3, 2), 4.0).all()


def test_the_least_similar_cluster_by_hand() -> None:
    """The members' mean cosines are 0.75 and 0.75, then 0.9, 1.0 and 0.9; a lone row is as similar as can be."""
    cosines = torch.eye(6, dtype=torch.float64)
    for one, other, cosine in ((0, 1, 0.5), (2, 3, 1.0), (2, 4, 0.7), (3, 4, 1.0)):
        cosines[one, other] = cosines[other, one] = cosine
    clusters, lots = torch.tensor([0, 0, 1, 1, 1, 2]), torch.arange(6)
    assert choose_cluster(clusters, cosines, lots).tolist() == [True, True] + [False] * 4
    clusters[:2] = -1
    assert choose_cluster(clusters, cosines, lots).tolist() == [False] * 2 + [True] * 3 + [False]


def test_of_clusters_that_are_alike_the_lowest_lot_is_chosen() -> None:
    clusters, alike = torch.tensor([0, 1, 0, 1]), torch.ones(4, 4) - 1e-15 * torch.arange(4)
    assert choose_cluster(clusters, alike.double(), torch.tensor([3, 2, 1, 4])).tolist() == [True, False, True, False]
    assert choose_cluster(clusters, alike.double(), torch.tensor([3, 1, 2, 4])).tolist() == [False, True, False, True]


def make_groups(seed: int = 0, backdoored: int = 8) -> Updates:
    """Twenty updates whose directions differ, and others that share one."""
    rows = torch.randn(20 + backdoored, 50, generator=stream(seed, "rows"), dtype=torch.float64)
    rows[20:] = 0.1 * rows[20:] + 20 * torch.ones(50) / 50**0.5
    return Updates.from_layers({"w": rows}, examples=range(1, 21 + backdoored))


@pytest.mark.parametrize("seed", range(3))
def test_the_verdict_is_that_of_scikit_learns_parts(seed: int) -> None:
    updates = make_groups(seed)
    rows = updates.values.numpy()
    verdict = RFLBAT(far_inside=1.2)(updates, Context(round=1))
    clusters = torch.as_tensor(verdict.facts["clusters"])
    points = PCA(2).fit_transform(rows)
    labels = KMeans(len(clusters.unique()), n_init=50, random_state=0).fit_predict(points)
    similar = [np.median(cosine_similarity(rows[labels == k]).mean(1)) for k in range(labels.max() + 1)]
    chosen = np.flatnonzero(labels == int(np.argmin(similar)))
    sums = pairwise_distances(points[chosen]).sum(1)
    expected = np.zeros(28, bool)
    expected[chosen[sums <= 1.2 * np.median(sums)]] = True
    assert verdict.elected.tolist() == expected.tolist()
    assert not expected[20:].any()
    assert expected.sum() < len(chosen)
    np.testing.assert_allclose(verdict.delta, rows[expected].mean(0))


def test_an_update_far_from_all_is_in_no_cluster() -> None:
    updates = make_groups()
    updates.values[3] *= 1000
    verdict = RFLBAT()(updates, Context(round=1))
    assert torch.as_tensor(verdict.facts["clusters"])[3] == -1
    assert not verdict.elected[3]
    assert RFLBAT(far=30.0)(updates, Context(round=1)).facts["clusters"].min() == 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_updates_are_judged(rows: int) -> None:
    assert RFLBAT()(make_toy_round(rows, infected=0), Context(round=1)).elected.any()


@pytest.mark.parametrize("far", [0.9, float("nan")])
def test_bounds_below_the_median_are_refused(far: float) -> None:
    for settings in ({"far": far}, {"far_inside": far}):
        with pytest.raises(SettingError, match="far and far_inside must be 1 or more, got"):
            RFLBAT(**settings)
