import pytest
import torch

from snowball.defenses import AlignIns, Context
from snowball.defenses.alignins import compute_deviations, measure_cosines, measure_sign_agreement
from snowball.errors import SettingError
from snowball.updates import Updates

ROWS = Updates.from_matrix(torch.tensor([[4.0, 3, -1, 1], [2, 5, 1, -1], [-6, -7, 1, 1]]))
"""In every column most entries are positive."""


def test_cosines_are_those_to_the_model() -> None:
    updates = Updates.from_matrix(torch.tensor([[3.0, 4], [-8, 6], [0, 0]]))
    assert measure_cosines(updates, torch.tensor([5.0, 0])).tolist() == pytest.approx([0.6, -0.8, 0])
    assert measure_cosines(updates, torch.zeros(2)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.5, [1, 1, 0]), (1.0, [0.75, 0.75, 0.5]), (0.75, [2 / 3, 2 / 3, 1 / 3]), (0.01, [1, 1, 0])],
)
def test_signs_of_the_largest_entries_are_compared_with_the_majority_s(share: float, expected: list[float]) -> None:
    """Of three entries, the third is one of two equal ones: it disagrees in the first rows as often as it agrees."""
    agreement = measure_sign_agreement(ROWS, share).tolist()
    if share == 0.75:
        assert agreement[2] == pytest.approx(1 / 3)
        assert {round(3 * value) for value in agreement[:2]} <= {2, 3}
    else:
        assert agreement == pytest.approx(expected)


def test_without_a_majority_zeros_agree() -> None:
    rows = Updates.from_matrix(torch.tensor([[1.0, 0], [-1, 0]]))
    assert measure_sign_agreement(rows, 1.0).tolist() == [0.5, 0.5]


def test_deviations_are_from_the_median_in_standard_deviations() -> None:
    """The median of 1, 2, 3 and 6 is 2.5, their mean 3, and their variance (4 + 1 + 0 + 9) / 4."""
    expected = [each / 3.5**0.5 for each in (1.5, 0.5, 0.5, 3.5)]
    assert compute_deviations(torch.tensor([1.0, 2, 3, 6])).tolist() == pytest.approx(expected)
    assert compute_deviations(torch.tensor([2.0, 2])).tolist() == [0, 0]


MODEL = torch.tensor([1.0, 0, 0, 0])
DIRECTIONS = torch.tensor([[3.0, 4, 0, 0], [6, 8, 0, 0], [3, 4, 0, 0], [5, 0, 0, 0], [-3, -4, 0, 0]])
"""Cosines 0.6, 0.6, 0.6, 1 and -0.6: deviations 0, 0, 0, 0.4 and 1.2, in standard deviations of 0.543."""


def test_whoever_deviates_in_either_is_left_out_and_the_others_are_clipped() -> None:
    """The median length of the first three is 5, so the second is halved; the others deviate by 0.737 and 2.21."""
    updates = Updates.from_matrix(DIRECTIONS, examples=[1, 2, 1, 4, 4])
    verdict = AlignIns(direction=0.7, largest=0.5)(updates, Context(round=1, base=MODEL))
    assert verdict.elected.tolist() == [True, True, True, False, False]
    assert verdict.facts["bound"] == 5
    torch.testing.assert_close(verdict.delta, DIRECTIONS[0])
    expected = [0, 0, 0, 0.4 / 0.5426, 1.2 / 0.5426]
    assert torch.as_tensor(verdict.facts["direction"]).tolist() == pytest.approx(expected, abs=1e-3)


def test_each_bound_counts_alone() -> None:
    updates, context = Updates.from_matrix(DIRECTIONS), Context(round=1, base=MODEL)
    assert AlignIns(direction=2.0, signs=99.0, largest=0.5)(updates, context).elected.tolist() == [True] * 4 + [False]
    only_signs = AlignIns(direction=99.0, signs=2.0, largest=0.25)(updates, context)
    assert only_signs.elected.tolist() == [True] * 4 + [False]  # whose signs oppose the majority's


def test_whoever_deviates_least_stays_if_all_deviate() -> None:
    updates = Updates.from_matrix(torch.tensor([[1.0, 0], [0, 1]]))  # each is one standard deviation from the median
    elected = [
        AlignIns()(updates, Context(round=round, base=torch.tensor([1.0, 0]))).elected.tolist()
        for round in range(1, 20)
    ]
    assert {tuple(each) for each in elected} == {(True, False), (False, True)}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"direction": 0.0}, r"must be positive deviations, got 0\.0 and 1\.0"),
        ({"signs": -1.0}, r"must be positive deviations, got 1\.0 and -1\.0"),
        ({"largest": 0.0}, r"largest must be a share in \(0, 1\], got 0\.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        AlignIns(**settings)


def test_a_model_is_needed() -> None:
    with pytest.raises(SettingError, match=r"alignins needs Context\.base"):
        AlignIns()(ROWS, Context(round=1))
