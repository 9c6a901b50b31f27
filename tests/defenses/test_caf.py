import pytest
import torch

from snowball.defenses import CAF, Context
from snowball.defenses.caf import find_top_direction
from snowball.errors import SettingError
from snowball.updates import Updates

LINE = torch.tensor([[-1.0], [1.0], [-1.0], [1.0], [10.0]], dtype=torch.float64)
"""The mean is 2, the squared deviations 9, 1, 9, 1 and 64: weights 55, 63, 55, 63 and 0 of 64, 3.69 in all, are left.

Their mean is 16 / 236 = 4 / 59. Of it, -1 is the farther value, by 63 / 59, so its weight is next to become 0.
"""


def test_the_mean_of_least_variance_is_taken() -> None:
    verdict = CAF(tolerate=1)(Updates.from_matrix(LINE), Context(round=1))
    assert verdict.delta.tolist() == pytest.approx([4 / 59])
    assert torch.as_tensor(verdict.facts["weights"]).tolist() == pytest.approx([55 / 64, 63 / 64, 55 / 64, 63 / 64, 0])
    assert verdict.elected.tolist() == [True] * 4 + [False]


def test_with_nobody_to_withstand_it_is_the_mean() -> None:
    assert CAF(tolerate=0)(Updates.from_matrix(LINE, examples=[1, 1, 1, 1, 99]), Context(round=1)).delta.tolist() == [2]


def test_a_further_pass_may_not_be_better() -> None:
    """With f = 2 the filter goes on until one weight is left; the least variance is that of both rows at 1 alone."""
    verdict = CAF(tolerate=2)(Updates.from_matrix(LINE), Context(round=1))
    assert verdict.delta.tolist() == pytest.approx([4 / 59])


def test_the_top_direction_is_that_of_the_weighted_covariance() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(9, 4, generator=rng, dtype=torch.float64)
    shares = torch.rand(9, generator=rng, dtype=torch.float64)
    shares[2] = 0
    shares /= shares.sum()
    apart = rows - shares @ rows
    variances, directions = torch.linalg.eigh(apart.T @ (shares[:, None] * apart))
    for origin in (0.0, 3.0):
        variance, deviations = find_top_direction((rows - origin) @ (rows - origin).T, shares)
        assert variance == pytest.approx(variances[-1].item())
        torch.testing.assert_close(deviations, (apart @ directions[:, -1]) ** 2)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e17])
def test_far_rows_are_left_out_and_the_filter_ends(far: float) -> None:
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[4] += far
    rows[5] -= 2 * far
    for tolerate, distance in ((2, 1), (4, 3)):
        verdict = CAF(tolerate)(Updates.from_matrix(rows), Context(round=1))
        assert not verdict.elected[[4, 5]].any()
        assert (verdict.delta - rows[[0, 1, 2, 3, 6, 7, 8]].mean(0)).norm() < distance


def test_equal_rows_are_all_kept() -> None:
    verdict = CAF()(Updates.from_matrix(torch.full((6, 3), 2.0)), Context(round=1))
    assert verdict.elected.all()
    assert verdict.delta.tolist() == [2] * 3


@pytest.mark.parametrize("tolerate", [3, 5])
def test_a_number_that_a_round_does_not_allow_is_refused(tolerate: int) -> None:
    with pytest.raises(SettingError, match=f"tolerating {tolerate} needs over {2 * tolerate} updates, got 5"):
        CAF(tolerate)(Updates.from_matrix(LINE), Context(round=1))


def test_half_of_the_updates_are_never_malicious() -> None:
    assert CAF(0.9)(Updates.from_matrix(LINE), Context(round=1)).facts["tolerated"] == 2
    with pytest.raises(SettingError, match="tolerate must be a share"):
        CAF(1.5)
