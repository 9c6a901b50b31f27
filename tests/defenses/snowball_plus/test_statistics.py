import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.defenses.snowball_plus.statistics import (
    SMALLEST_VARIANCE,
    compare_groups,
    cut_columns,
    cut_in_two,
    rank_group,
    standardise,
    standardise_robustly,
)
from snowball.rng import stream

NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.floats(-100, 100).map(lambda value: round(value, 3)))


def scatter_within(values: np.ndarray, upper: np.ndarray) -> float:
    """The squared deviations of both groups from their means."""
    return sum(float(((part - part.mean()) ** 2).sum()) for part in (values[upper], values[~upper]))


@given(st.lists(NUMBERS, min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1))
def test_the_cut_is_the_best_of_all_cuts(values: list[float]) -> None:
    numbers = np.array(values)
    upper, separation = cut_in_two(torch.tensor(values, dtype=torch.float64))
    cuts = [numbers > bound for bound in sorted(set(values))[:-1]]
    chosen = upper.numpy()
    assert any((chosen == cut).all() for cut in cuts)
    least = scatter_within(numbers, chosen)
    assert least == pytest.approx(min(scatter_within(numbers, cut) for cut in cuts), rel=1e-9, abs=1e-9)
    gap = numbers[chosen].mean() - numbers[~chosen].mean()
    if least > 1e-3:
        assert separation == pytest.approx(gap / (least / len(numbers)) ** 0.5, rel=1e-6)
    else:
        assert separation > gap * 10


def test_one_distribution_cut_in_its_middle_has_a_known_separation() -> None:
    shares = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    for values, expected in ((torch.special.ndtri(shares), 2.65), (shares, 3.46)):
        upper, separation = cut_in_two(values)
        assert separation == pytest.approx(expected, abs=0.01)
        assert int(upper.sum()) == pytest.approx(2000, abs=20)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0], [0.1] * 9])
def test_values_that_are_all_alike_have_no_upper_group(values: list[float]) -> None:
    upper, separation = cut_in_two(torch.tensor(values, dtype=torch.float64))
    assert upper.tolist() == [False] * len(values)
    assert separation == 0


def test_two_values_are_two_groups_and_ties_stay_together() -> None:
    upper, separation = cut_in_two(torch.tensor([5.0, 1.0], dtype=torch.float64))
    assert upper.tolist() == [True, False]
    assert 1e6 < separation < float("inf")
    upper, separation = cut_in_two(torch.tensor([1.0, 2, 1, 2, 2, 1, 9], dtype=torch.float64))
    assert upper.tolist() == [False] * 6 + [True]
    assert separation == pytest.approx((9 - 1.5) / (1.5 / 7) ** 0.5)


def cut_by_trying(values: np.ndarray) -> tuple[np.ndarray, float]:
    """The upper group with the least scatter within both, and how far apart they are, by trying every cut."""
    cuts = [values > bound for bound in sorted(set(values.tolist()))[:-1]]
    if not cuts:
        return np.zeros(len(values), dtype=bool), 0.0
    upper = min(cuts, key=lambda cut: scatter_within(values, cut))
    deviation = (scatter_within(values, upper) / len(values)) ** 0.5
    return upper, float((values[upper].mean() - values[~upper].mean()) / deviation)


@pytest.mark.parametrize("rows", [3, 8, 50])
def test_columns_are_cut_as_by_trying_every_cut(rows: int) -> None:
    values = torch.randn(rows, 12, generator=stream(rows, "columns"), dtype=torch.float64)
    values[: rows // 3, :4] += 5  # groups that stand apart
    values[:, 4] = 2.5  # nothing to cut
    if rows > 3:
        values[:, 5] = values[:, 5].round()  # ties
    upper, separations = cut_columns(values)
    assert upper.shape == (rows, 12)
    for column, group, separation in zip(values.T.numpy(), upper.T.numpy(), separations.tolist(), strict=True):
        expected, apart = cut_by_trying(column)
        assert (group == expected).all()
        assert separation == pytest.approx(apart, rel=1e-6)


def test_the_separation_of_two_points_does_not_depend_on_rounding() -> None:
    values = torch.zeros(7, 2, dtype=torch.float64)
    values[6] = 1
    upper, separations = cut_columns(values)
    assert upper.nonzero().tolist() == [[6, 0], [6, 1]]
    assert separations.tolist() == pytest.approx([SMALLEST_VARIANCE**-0.5] * 2)


@given(st.integers(0, 9), st.integers(0, 4), st.data())
def test_columns_are_cut_as_one_by_one(rows: int, columns: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(NUMBERS, min_size=rows * columns, max_size=rows * columns))
    values = torch.tensor(numbers, dtype=torch.float64).view(rows, columns)
    before = values.clone()
    upper, separations = cut_columns(values)
    assert torch.equal(values, before)
    assert upper.shape == values.shape
    for number, (column, separation) in enumerate(zip(values.unbind(1), separations.tolist(), strict=True)):
        group, apart = cut_in_two(column)
        assert torch.equal(upper[:, number], group)
        assert separation == pytest.approx(apart, rel=1e-6)


def test_columns_that_are_all_alike_have_no_upper_group_beside_one_that_does() -> None:
    values = torch.tensor([[1.0, 0.1, 0], [1.0, 0.1, 7], [1.0, 0.1, 0]], dtype=torch.float64)
    upper, separations = cut_columns(values)
    assert upper.tolist() == [[False, False, False], [False, False, True], [False, False, False]]
    assert separations[:2].tolist() == [0, 0]
    assert 1e6 < float(separations[2]) < float("inf")


def count_pairs(values: np.ndarray, group: np.ndarray) -> float:
    """The Mann-Whitney statistic pair by pair, standardised as the textbooks do."""
    pairs = [(one > other) + (one == other) / 2 for one in values[group] for other in values[~group]]
    inside, outside = int(group.sum()), int((~group).sum())
    return float((sum(pairs) - inside * outside / 2) / (inside * outside * (inside + outside + 1) / 12) ** 0.5)


@given(st.lists(st.tuples(NUMBERS, st.booleans()), min_size=2, max_size=12))
def test_the_rank_of_a_group_counts_pairs(rows: list[tuple[float, bool]]) -> None:
    values, group = np.array([value for value, _ in rows]), np.array([marked for _, marked in rows])
    expected = count_pairs(values, group) if group.any() and not group.all() else 0.0
    assert rank_group(torch.tensor(values), torch.tensor(group)) == pytest.approx(expected, abs=1e-12)


def test_the_highest_15_of_50_have_a_known_rank() -> None:
    values, group = torch.arange(50, dtype=torch.float64), torch.arange(50) >= 35
    assert rank_group(values, group) == pytest.approx(5.5572, abs=1e-4)
    assert rank_group(-values, group) == pytest.approx(-5.5572, abs=1e-4)


def test_values_are_standardised_by_mean_and_deviation() -> None:
    values = torch.tensor([1.0, 2, 3, 4, 100], dtype=torch.float64)
    expected = (values.numpy() - 22) / values.numpy().std()
    np.testing.assert_allclose(standardise(values).numpy(), expected)
    assert standardise(torch.full((4,), 7.0, dtype=torch.float64)).tolist() == [0] * 4


def test_a_far_value_does_not_move_the_robust_standard() -> None:
    near, far = (torch.tensor([1.0, 2, 3, 4, last], dtype=torch.float64) for last in (5, 100))
    torch.testing.assert_close(standardise_robustly(near)[:4], standardise_robustly(far)[:4])
    assert float(standardise_robustly(far)[4]) == pytest.approx(97 / 1.4826)
    drawn = torch.randn(20000, generator=stream(0), dtype=torch.float64)
    assert float(standardise_robustly(5 + 3 * drawn).std()) == pytest.approx(1, abs=0.03)


def test_constants_have_no_robust_deviation_and_one_that_differs_has_a_finite_one() -> None:
    assert standardise_robustly(torch.full((5,), 3.0, dtype=torch.float64)).tolist() == [0] * 5
    odd = standardise_robustly(torch.tensor([3.0, 3, 3, 3, 4], dtype=torch.float64))
    assert odd.isfinite().all()
    assert odd[:4].tolist() == [0] * 4
    assert odd[4] > 100


@pytest.mark.parametrize("marked", [0, 1, 3, 6, 7])
def test_rows_are_compared_with_the_others_of_each_group(marked: int) -> None:
    likeness = torch.randn(7, 7, generator=stream(marked), dtype=torch.float64)
    group = torch.arange(7) < marked
    expected = []
    for row in range(7):
        means = []
        for members in (group, ~group):
            others = [float(likeness[row, other]) for other in range(7) if members[other] and other != row]
            means.append(sum(others) / max(1, len(others)))
        expected.append(means[0] - means[1])
    np.testing.assert_allclose(compare_groups(likeness, group).numpy(), expected, atol=1e-12)


def test_how_like_itself_a_row_is_has_no_influence() -> None:
    likeness, group = torch.randn(9, 9, generator=stream(0), dtype=torch.float64), torch.arange(9) < 4
    other = likeness.clone().fill_diagonal_(1e6)
    assert torch.equal(compare_groups(likeness, group), compare_groups(other, group))
    assert (other.diagonal() == 1e6).all()  # nor is it changed
