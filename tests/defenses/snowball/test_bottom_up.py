from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import calinski_harabasz_score

from snowball.defenses.snowball.bottom_up import choose_centroids, count_ballots, weigh_ballots
from snowball.updates import Updates


def sklearn_totals(updates: Updates, clusters: int) -> np.ndarray:
    """Votes by scikit-learn, one voter after the other, on the rows themselves."""
    totals = np.zeros(len(updates))
    for columns in updates.layout.columns.values():
        rows = updates.values[:, columns].double().numpy()
        scores, approved = [], []
        for row in rows:
            apart = rows - row
            far = np.argsort(-(apart**2).sum(1), kind="stable")[: clusters - 1]
            start = np.concatenate([np.zeros((1, rows.shape[1])), apart[far]])
            labels = KMeans(clusters, init=start, n_init=1, tol=0).fit(apart).labels_
            scores.append(calinski_harabasz_score(apart, labels))
            approved.append(labels == labels[np.flatnonzero((apart == 0).all(1))[0]])
        spread = max(scores) - min(scores)
        equal = spread <= 1e-9 * max(scores)  # but for rounding
        weights = np.ones(len(rows)) if equal else (np.array(scores) - min(scores)) / spread
        totals += weights @ np.array(approved)
    return totals


def test_the_worked_example(worked: Any) -> None:
    ballots = count_ballots(worked.updates, ("first", "last"), clusters=4)
    np.testing.assert_allclose(ballots.totals, worked.totals, atol=5e-5)
    assert ballots.totals.argsort(descending=True)[:4].tolist() == [6, 2, 1, 4]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(6, 24), scale=st.sampled_from([1e-4, 1.0, 1e3]), data=st.data())
def test_votes_equal_scikit_learn_voter_by_voter(seed: int, rows: int, scale: float, data: st.DataObject) -> None:
    clusters = data.draw(st.integers(2, rows - 1))
    draws = torch.randn(rows, 12, generator=torch.Generator().manual_seed(seed))
    updates = Updates.from_layers({"a": draws[:, None, :5] * scale, "b": draws[:, None, 5:] * scale})
    ballots = count_ballots(updates, ("a", "b"), clusters)
    np.testing.assert_allclose(ballots.totals, sklearn_totals(updates, clusters), atol=1e-9)


def test_facts_of_a_ballot_fit_together(worked: Any) -> None:
    ballots = count_ballots(worked.updates, ("first", "last"), clusters=4)
    np.testing.assert_allclose(sum(ballots.votes.values()), ballots.totals, atol=1e-9)
    for layer, weights in ballots.weight.items():
        assert weights.min() == 0
        assert weights.max() == 1
        assert torch.equal(weights.argsort(), ballots.clarity[layer].argsort())


def test_voters_start_from_themselves_and_the_farthest() -> None:
    gram = Updates.from_layers({"w": torch.tensor([[0.0], [1.0], [5.0], [-3.0]])}).gram()
    assert choose_centroids(gram, 3).tolist() == [[0, 2, 3], [1, 2, 3], [2, 3, 0], [3, 2, 1]]


def test_of_equally_far_rows_the_first_are_centroids() -> None:
    others = [[row for row in range(100) if row != voter] for voter in range(100)]
    assert choose_centroids(torch.eye(100), 4).tolist() == [[voter, *others[voter][:3]] for voter in range(100)]


def test_ballots_are_scaled_from_the_floor_to_one() -> None:
    scores = torch.tensor([2.0, 4.0, 3.0], dtype=torch.float64)
    assert weigh_ballots(scores, 0.0).tolist() == [0.0, 1.0, 0.5]
    assert weigh_ballots(scores, 0.5).tolist() == [0.5, 1.0, 0.75]


@pytest.mark.parametrize("scores", [[0.0, 0.0], [7.0, 7.0], [7e6, 7e6 * (1 + 1e-12)]])
def test_equally_clear_ballots_all_count_one(scores: list[float]) -> None:
    assert weigh_ballots(torch.tensor(scores, dtype=torch.float64), 0.0).tolist() == [1.0, 1.0]


def test_ballots_that_differ_by_more_than_rounding_do_not_count_the_same() -> None:
    assert weigh_ballots(torch.tensor([7.0, 7.0 * (1 + 1.5e-9)], dtype=torch.float64), 0.0).tolist() == [0.0, 1.0]


def test_a_layer_without_variance_decides_nothing(worked: Any) -> None:
    flat = torch.zeros(10, 1, 3)
    varied = torch.tensor(worked.last)[:, None]
    ballots = count_ballots(Updates.from_layers({"flat": flat, "varied": varied}), ("flat", "varied"), 4)
    assert ballots.votes["flat"].tolist() == [10.0] * 10
    assert ballots.totals.isfinite().all()


def test_totals_are_rounded_so_that_equal_ones_tie() -> None:
    rows = torch.randn(12, 1, 6, generator=torch.Generator().manual_seed(5))
    ballots = count_ballots(Updates.from_layers({"w": rows}), ("w",), clusters=3)
    assert ballots.totals.tolist() == [round(total, 9) for total in ballots.votes["w"].tolist()]
    assert not torch.equal(ballots.totals, ballots.votes["w"])
