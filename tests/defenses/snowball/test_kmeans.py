import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import calinski_harabasz_score
from torch import Tensor

from benchmarks.baselines.lloyd import run_plain_lloyd
from snowball.defenses.snowball import kmeans
from snowball.defenses.snowball.bottom_up import choose_centroids
from snowball.defenses.snowball.kmeans import (
    Clusterings,
    bound_rounding,
    compute_calinski_harabasz,
    measure_scatter,
    measure_scatter_within,
    run_lloyd,
)


def score(gram: Tensor, labels: Tensor, clusters: int) -> Tensor:
    return compute_calinski_harabasz(
        gram, Clusterings(labels, measure_scatter_within(gram, labels, clusters)), clusters
    )


def test_scatter_is_about_the_mean_wherever_the_rows_are() -> None:
    rows = torch.tensor([[1.0], [2.0], [4.0], [5.0]], dtype=torch.float64)
    assert float(measure_scatter(rows @ rows.T)) == pytest.approx(10)
    assert float(measure_scatter(rows @ rows.T / 100)) == pytest.approx(0.1)


def test_what_rounding_explains_grows_with_the_rows() -> None:
    limits = torch.finfo(torch.float64)
    assert float(bound_rounding(4 * torch.eye(8, dtype=torch.float64))) == pytest.approx(
        32 * limits.eps, rel=1e-12, abs=0
    )
    assert float(bound_rounding(torch.zeros(8, 8, dtype=torch.float64))) == limits.tiny


@pytest.mark.parametrize(("elements", "chunk"), [(1, 1), (300, 2)])
def test_chunks_hold_as_many_starts_as_the_bound_allows_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch, elements: int, chunk: int
) -> None:
    gram = torch.randn(30, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gram = (gram - gram.mean(0)) @ (gram - gram.mean(0)).T
    whole = run_lloyd(gram, choose_centroids(gram, 5)).labels
    sizes, run = [], kmeans._run_starts

    def note_size(gram: Tensor, starts: Tensor) -> Clusterings:
        sizes.append(len(starts))
        return run(gram, starts)

    monkeypatch.setattr(kmeans, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(kmeans, "_run_starts", note_size)
    assert torch.equal(run_lloyd(gram, choose_centroids(gram, 5)).labels, whole)
    assert set(sizes) == {chunk}


def test_an_emptied_cluster_takes_the_farthest_row_as_scikit_learn_does() -> None:
    rows = np.array([[0.0], [0.0], [0.0], [1.0], [10.0]])
    start = [0, 1, 2]  # three centroids on one spot: two of them stay empty
    centred = torch.tensor(rows - rows.mean(0))
    ours = run_lloyd(centred @ centred.T, torch.tensor([start])).labels[0]
    theirs = KMeans(3, init=rows[start], n_init=1, tol=0).fit(rows).labels_
    assert [ours.tolist().index(label) for label in ours] == [theirs.tolist().index(label) for label in theirs]


@pytest.mark.parametrize("clusters", [2, 4])
def test_scatter_and_clarity_equal_scikit_learn(clusters: int) -> None:
    rows = torch.randn(20, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    centred = rows - rows.mean(0)
    labels = torch.randint(0, clusters, (5, 20), generator=torch.Generator().manual_seed(4))
    expected = [calinski_harabasz_score(rows, row) for row in labels.numpy()]
    np.testing.assert_allclose(score(centred @ centred.T, labels, clusters), expected, rtol=1e-12)
    within = [sum(((rows[row == k] - rows[row == k].mean(0)) ** 2).sum() for k in range(clusters)) for row in labels]
    np.testing.assert_allclose(measure_scatter_within(centred @ centred.T, labels, clusters), within, rtol=1e-12)


def test_rows_on_their_centroids_are_clearest_of_all() -> None:
    rows = torch.tensor([[0.0], [0.0], [4.0], [4.0], [9.0]], dtype=torch.float64)
    gram = (rows - rows.mean(0)) @ (rows - rows.mean(0)).T
    perfect, poor = score(gram, torch.tensor([[0, 0, 1, 1, 2], [0, 0, 1, 2, 2]]), 3)
    assert perfect > poor
    assert perfect.isfinite()


def test_rows_on_one_spot_are_one_cluster() -> None:
    for square in (0.0, 25.0):
        gram = torch.full((4, 4), square, dtype=torch.float64)
        assert run_lloyd(gram, torch.tensor([[0, 1, 2], [3, 1, 0]])).labels.tolist() == [[0] * 4] * 2
        assert score(gram, torch.zeros(1, 4, dtype=torch.int64), 3).tolist() == [0]


def test_rounding_makes_neither_scatter_nor_clarity_negative() -> None:
    for seed in range(20):
        rows = torch.randn(1, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).expand(9, 7)
        labels = torch.arange(9)[None] % 3
        assert (measure_scatter_within(rows @ rows.T, labels, 3) >= 0).all()
        apart = torch.randn(9, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert (score(apart @ apart.T, torch.zeros_like(labels), 3) >= 0).all()


def test_clarity_does_not_depend_on_the_unit() -> None:
    rows = torch.tensor([[0.0], [1.0], [7.0], [9.0]], dtype=torch.float64)
    labels = torch.tensor([[0, 0, 1, 1]])
    large, small = (score(unit * rows @ rows.T, labels, 2) for unit in (1.0, 1e-20))
    assert float(small) == pytest.approx(float(large))


def test_clarity_of_rows_on_their_centroids_is_finite_even_where_most_have_no_length() -> None:
    rows = torch.zeros(9, 1, dtype=torch.float64)
    rows[8] = 1e3
    assert score(rows @ rows.T, torch.tensor([[0] * 8 + [1]]), 2).isfinite().all()


def make_hard_rows(kind: str, rows: int, rng: torch.Generator) -> Tensor:
    """Return (n, 6) rows among which rounding could decide."""
    drawn = torch.randn(rows, 6, generator=rng, dtype=torch.float64)
    if kind == "groups":
        return drawn + 8 * torch.randn(7, 6, generator=rng, dtype=torch.float64)[torch.arange(rows) % 7]
    if kind == "duplicates":
        return drawn[torch.randint(0, rows // 3, (rows,), generator=rng)]
    if kind == "few spots":
        return drawn[torch.arange(rows) % 4]
    if kind == "lattice":
        return drawn.round()
    if kind == "half zero":
        return drawn * (torch.arange(rows) % 2)[:, None]
    if kind == "far":
        return drawn + 1e9 * (torch.arange(rows) % 50 == 0)[:, None]
    return drawn


HARD = ("noise", "groups", "duplicates", "few spots", "lattice", "half zero", "far")


@pytest.mark.parametrize("kind", HARD)
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 10_000), rows=st.integers(130, 150), clusters=st.integers(5, 9))
def test_labels_of_many_rows_equal_those_of_plain_steps(kind: str, seed: int, rows: int, clusters: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    drawn = make_hard_rows(kind, rows, rng)
    middle = drawn[drawn.square().sum(1).argsort()[rows // 2]]
    gram = (drawn - middle) @ (drawn - middle).T
    starts = torch.rand(20, rows, generator=rng).argsort(1)[:, :clusters]
    starts[:5, 1] = starts[:5, 0]  # a cluster that is empty after the first step
    found = run_lloyd(gram, starts)
    assert torch.equal(found.labels, run_plain_lloyd(gram, starts))
    scatter = measure_scatter_within(gram, found.labels, clusters)
    np.testing.assert_allclose(found.within, scatter, rtol=1e-9, atol=float(bound_rounding(gram)))
