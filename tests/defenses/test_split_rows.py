import pytest
import torch
from sklearn.cluster import KMeans

from snowball.defenses.split_rows import split_rows
from snowball.rng import stream


@pytest.mark.parametrize("clusters", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_split_is_as_good_as_scikit_learns(clusters: int, seed: int) -> None:
    rows = torch.randn(30, 4, generator=stream(seed, "rows"), dtype=torch.float64)
    rows[:12, 0] += 4
    labels = split_rows(rows @ rows.T, clusters, stream(seed, "starts"))
    best = KMeans(clusters, n_init=50, random_state=seed).fit(rows.numpy())
    scatter = sum(float(((part - part.mean(0)) ** 2).sum()) for part in (rows[labels == k] for k in range(clusters)))
    assert scatter <= best.inertia_ * (1 + 1e-9)
    assert len(labels.unique()) == clusters


def test_rows_far_apart_are_split_by_hand() -> None:
    rows = torch.tensor([[0.0, 0], [9, 9], [0, 1], [9, 8], [1, 0]]).double()
    labels = split_rows(rows @ rows.T, 2, stream(0, "starts")).tolist()
    assert labels[0] == labels[2] == labels[4] != labels[1] == labels[3]


def test_rows_that_coincide_stay_together() -> None:
    assert split_rows(torch.ones(4, 4).double(), 2, stream(0, "starts")).tolist() == [0] * 4
