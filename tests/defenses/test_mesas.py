from math import sqrt

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, levene, ttest_ind
from torch import Tensor

from snowball import products as products_module
from snowball.defenses import Context
from snowball.defenses.mesas import MESAS, compare_means, halves_differ, mark_poisoned, measure_metrics
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import make_toy_round
from snowball.updates import Updates

ROWS = torch.tensor([[1.0, -2, 0, 0], [0, 0, 0, -4], [0, 0, 0, 0]])
BASE = torch.tensor([0.0, 0, 0, 2])


def draw_values(seed: int, rows: int = 40, far: int = 0, by: float = 10.0) -> Tensor:
    values = torch.randn(rows, generator=stream(seed, "values"), dtype=torch.float64)
    values[:far] += by
    return values


def test_six_metrics_by_hand() -> None:
    """The models are (1, -2, 0, 2) of length 3, the base turned round, and the base."""
    found = {name: values.tolist() for name, values in measure_metrics(Updates.from_layers({"w": ROWS}), BASE).items()}
    expected = {
        "COS": [1 - 4 / (3 * 2), 2, 0],
        "EUCL": [sqrt(5), 4, 0],
        "COUNT": [1, 0, 0],
        "VAR": [5 / 4 - (1 / 4) ** 2, 16 / 4 - 1, 0],
        "MIN": [1, 4, 0],
        "MAX": [2, 4, 0],
    }
    assert found == {name: pytest.approx(values) for name, values in expected.items()}


def test_a_base_of_zeros_is_at_right_angles_to_all() -> None:
    metrics = measure_metrics(Updates.from_layers({"w": ROWS}), torch.zeros(4))
    assert metrics["COS"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("block", [1, 60, 1 << 19])
def test_metrics_are_numpys_in_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products_module, "BLOCK_ELEMENTS", block)
    updates = make_toy_round(width=30)
    base = torch.randn(30, generator=stream(0, "base"))
    metrics, rows, start = measure_metrics(updates, base), updates.values.double().numpy(), base.double().numpy()
    models = start + rows
    cosines = models @ start / np.linalg.norm(models, axis=1) / np.linalg.norm(start)
    np.testing.assert_allclose(metrics["COS"], 1 - cosines, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(metrics["EUCL"], np.linalg.norm(rows, axis=1))
    np.testing.assert_array_equal(metrics["COUNT"], (rows > 0).sum(1))
    np.testing.assert_allclose(metrics["VAR"], rows.var(1))
    np.testing.assert_array_equal(metrics["MIN"], np.abs(rows).min(1))
    np.testing.assert_array_equal(metrics["MAX"], np.abs(rows).max(1))


def test_a_p_value_by_hand() -> None:
    """The means are 10/25 and 0, the pooled variance (10 * 0.36 + 15 * 0.16) / 48 = 1/8, so t = 0.4 / 0.1 = 4."""
    upper, lower = torch.tensor([1.0] * 10 + [0.0] * 15).double(), torch.zeros(25).double()
    assert compare_means(upper, lower) == pytest.approx(2.18e-4, rel=1e-2)
    assert compare_means(lower, lower) == 1
    assert compare_means(lower + 1, lower) == 0


@pytest.mark.parametrize("seed", range(4))
def test_p_values_are_scipys(seed: int) -> None:
    values = draw_values(seed, far=8, by=2.0)
    one, other = values[:15], 3 * values[15:]
    assert compare_means(one, other) == pytest.approx(ttest_ind(one.numpy(), other.numpy()).pvalue)
    scatters = [(part - part.quantile(0.5)).abs() for part in (one, other)]
    assert compare_means(*scatters) == pytest.approx(levene(one.numpy(), other.numpy()).pvalue)


def find_p_values(values: Tensor) -> list[float]:
    numbers = values.numpy()
    median = np.median(numbers)
    halves = numbers[numbers > median] - median, median - numbers[numbers < median]
    tests = ttest_ind(*halves), levene(*halves), ks_2samp(*halves, method="asymp")
    return [float(test.pvalue) for test in tests]


EVEN = torch.linspace(0.1, 1, 101, dtype=torch.float64)
PAIRS = torch.tensor([0.325, 0.775] * 50 + [0.55], dtype=torch.float64)  # whose mean and mean deviation are EVEN's


@pytest.mark.parametrize(
    ("least", "upper"),
    [(0, EVEN + 0.1), (1, 0.6 * (EVEN - 0.55) + 0.55), (2, PAIRS)],
    ids=["mean", "variance", "distribution"],
)
def test_halves_differ_from_the_least_of_three_p_values_on(least: int, upper: Tensor) -> None:
    values = torch.cat([upper, -EVEN, torch.zeros(1)])
    found = find_p_values(values)
    assert found.index(min(found)) == least
    assert halves_differ(values, 1.001 * min(found))
    assert not halves_differ(values, 0.999 * min(found))


@pytest.mark.parametrize("values", [[0.0, 0, 0, 9], [1.0, 2], [-5.0, 0, 0, 0, 7]])
def test_halves_of_one_value_are_not_tested(values: list[float]) -> None:
    assert not halves_differ(torch.tensor(values, dtype=torch.float64), 1.0)


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e150])
def test_the_smaller_cluster_is_pruned_on_either_side(side: float, scale: float) -> None:
    values = side * scale * draw_values(0, 30, far=9)
    assert mark_poisoned(values, 0.01).tolist() == [True] * 9 + [False] * 21
    assert not mark_poisoned(values, 0.0).any()


@pytest.mark.parametrize(("rows", "pruned"), [(10, 0), (11, 1), (50, 1)])
def test_one_far_out_is_three_deviations_out_among_eleven(rows: int, pruned: int) -> None:
    """Of n values of which one differs, it lies sqrt(n - 1) standard deviations from their mean."""
    values = torch.zeros(rows, dtype=torch.float64)
    values[-1] = 5
    assert mark_poisoned(values, 0.0).sum() == pruned


@pytest.mark.parametrize("values", [[2.0] * 20, [0.0] * 20, [1.0, 1 + 1e-12] * 10])
def test_equal_values_speak_against_nobody(values: list[float]) -> None:
    assert not mark_poisoned(torch.tensor(values, dtype=torch.float64), 1.0).any()


def test_models_that_stand_out_in_different_metrics_are_all_pruned() -> None:
    """The last twelve are too long, and the twelve before them as long as usual, but all positive."""
    rows = torch.randn(40, 300, generator=stream(0, "rows"))
    rows[16:28] = rows[16:28].abs()
    rows[28:] *= 5
    updates = Updates.from_layers({"w": rows}, examples=range(1, 41))
    verdict = MESAS(1e-4)(updates, Context(round=1, base=torch.ones(300)))
    assert verdict.elected.tolist() == [True] * 16 + [False] * 24
    weights = np.arange(1, 17) / np.arange(1, 17).sum()
    np.testing.assert_allclose(verdict.delta, weights @ rows[:16].double().numpy(), rtol=1e-4, atol=1e-6)
    assert torch.as_tensor(verdict.facts["metric.COUNT"])[16:28].tolist() == [300] * 12


def test_a_fifth_of_fifty_is_never_significant_at_the_level_of_a_public_copy() -> None:
    """However far out they are, Student's test reaches 2.2e-4 and no other test less."""
    values = 1e-6 * draw_values(0, 50)
    values[:10] += 1e6
    assert not mark_poisoned(values, 1e-4).any()
    assert mark_poisoned(values, 0.01).tolist() == [True] * 10 + [False] * 40


@pytest.mark.parametrize("significance", [-0.1, 1.1, float("nan")])
def test_impossible_levels_are_refused(significance: float) -> None:
    with pytest.raises(SettingError, match=r"significance must lie in 0\.\.1, got"):
        MESAS(significance)


def test_the_global_model_is_needed() -> None:
    with pytest.raises(SettingError, match=r"mesas needs Context\.base"):
        MESAS()(make_toy_round(), Context(round=1))
