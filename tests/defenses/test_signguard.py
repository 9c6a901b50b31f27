import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, SignGuard
from snowball.defenses.signguard import cluster_by_mean_shift, count_signs
from snowball.errors import SettingError
from snowball.testing import make_toy_round
from snowball.updates import Updates

ALL = SignGuard(columns=1.0)


def make_rows(positive: list[int], lengths: list[float]) -> Tensor:
    """Return rows of 16 entries of one size, so many of them positive, of the given lengths."""
    signs = torch.where(torch.arange(16) < torch.tensor(positive)[:, None], 1.0, -1.0)
    return signs * torch.tensor(lengths)[:, None] / 4


def test_signs_are_counted() -> None:
    updates = Updates.from_matrix(torch.tensor([[9.0, 1, -2, 0, 4], [9.0, 0, 0, 0, -1]]))
    assert count_signs(updates, slice(1, 5)).tolist() == [[0.5, 0.25, 0.25], [0, 0.75, 0.25]]


def test_whoever_has_other_signs_is_left_out() -> None:
    rows = make_rows([10, 11, 10, 11, 10, 2, 3], [4.0] * 7)
    verdict = ALL(Updates.from_matrix(rows), Context(round=1))
    assert verdict.elected.tolist() == [True] * 5 + [False] * 2
    torch.testing.assert_close(verdict.delta, rows[:5].mean(0))
    assert torch.as_tensor(verdict.facts["positive"]).tolist() == [
        10 / 16,
        11 / 16,
        10 / 16,
        11 / 16,
        10 / 16,
        2 / 16,
        3 / 16,
    ]


def test_whoever_has_an_unusual_length_is_left_out_and_the_others_are_clipped() -> None:
    """The median length is 4: 0.3 is shorter than 0.4, 13 is longer than 12, and 8 is clipped."""
    rows = make_rows([10] * 7, [4, 4, 4, 8, 0.3, 13, 2])
    verdict = ALL(Updates.from_matrix(rows, examples=range(1, 8)), Context(round=1))
    assert verdict.elected.tolist() == [True] * 4 + [False, False, True]
    assert verdict.facts["bound"] == 4
    torch.testing.assert_close(verdict.delta, rows[0] * (4 + 2 / 4) / 5)


def test_bounds_themselves_are_usual() -> None:
    rows = make_rows([10] * 5, [4, 4, 4, 0.5, 12])
    assert SignGuard(shortest=0.125, columns=1.0)(Updates.from_matrix(rows), Context(round=1)).elected.all()


def test_if_the_filters_agree_on_nobody_the_cluster_stays() -> None:
    """The largest cluster is that of the three that are ten times as long as the median."""
    rows = make_rows([10, 10, 10, 0, 4, 14, 16], [40, 40, 40, 4, 4, 4, 4])
    verdict = ALL(Updates.from_matrix(rows), Context(round=1))
    assert verdict.elected.tolist() == [True] * 3 + [False] * 4


def test_other_columns_are_drawn_in_every_round() -> None:
    updates = make_toy_round(width=100)
    shares = [torch.as_tensor(SignGuard()(updates, Context(round=round)).facts["positive"]) for round in (1, 1, 2)]
    assert torch.equal(shares[0], shares[1])
    assert not torch.equal(shares[0], shares[2])
    assert (shares[0] * 10 % 1).abs().max() < 1e-9  # a tenth of 100 columns


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_scikit_learn_with_its_bandwidth(seed: int) -> None:
    from sklearn.cluster import MeanShift, estimate_bandwidth

    rng = torch.Generator().manual_seed(seed)
    points = torch.rand(15, 3, generator=rng, dtype=torch.float64) + torch.arange(3).repeat(5)[:, None]
    bandwidth = estimate_bandwidth(points.numpy(), quantile=0.5)
    expected = MeanShift(bandwidth=bandwidth, cluster_all=False).fit_predict(points.numpy())
    assert cluster_by_mean_shift(points).tolist() == expected.tolist()


@pytest.mark.parametrize("count", [2, 5])
def test_equal_points_are_one_cluster(count: int) -> None:
    points = torch.tensor([[0, 8, 32]], dtype=torch.float64).repeat(count, 1) / 40
    assert cluster_by_mean_shift(points).tolist() == [0] * count


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"shortest": 1.5}, r"must lie between shortest and longest, got shortest 1\.5 and longest 3\.0"),
        ({"longest": 0.5}, r"got shortest 0\.1 and longest 0\.5"),
        ({"columns": 0.0}, r"columns must be a share in \(0, 1\], got 0\.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        SignGuard(**settings)
