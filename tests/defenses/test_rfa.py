import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from snowball.defenses.base import Context
from snowball.defenses.rfa import RFA
from snowball.errors import SettingError
from snowball.updates import Updates

CORNERS = Updates.from_layers({"w": torch.tensor([[0.0, 0], [1, 0], [0, 1], [10, 10]])})


@pytest.mark.parametrize(("iterations", "both"), [(1, 1.3242), (2, 0.7436), (3, 0.5701)])
def test_steps_by_hand(iterations: int, both: float) -> None:
    verdict = RFA(iterations)(CORNERS, Context(round=1))
    torch.testing.assert_close(verdict.delta, torch.tensor([both, both]), rtol=0, atol=5e-5)
    assert verdict.elected.all()
    assert float(torch.as_tensor(verdict.facts["weights"]).sum()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
def test_many_steps_reach_the_least_sum_of_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, examples = rng.normal(size=(11, 5)), rng.integers(1, 20, 11)
    rows[8:] += 50

    def total(point: np.ndarray) -> float:
        return float(examples @ np.linalg.norm(rows - point, axis=1))

    best = minimize(total, np.median(rows, axis=0), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    updates = Updates.from_layers({"w": torch.tensor(rows)}, examples=examples.tolist())
    delta = RFA(iterations=2000)(updates, Context(round=1)).delta.numpy()
    assert total(delta) <= best.fun + 1e-8
    np.testing.assert_allclose(delta, minimize(total, delta, method="Nelder-Mead").x, atol=1e-3)


def test_examples_weigh() -> None:
    heavy = Updates.from_layers({"w": CORNERS.values}, examples=[1, 1, 1, 1e300])
    torch.testing.assert_close(RFA()(heavy, Context(round=1)).delta, torch.tensor([10.0, 10.0]))
    all_heavy = Updates.from_layers({"w": CORNERS.values}, examples=[1e308] * 4)
    assert torch.equal(RFA()(all_heavy, Context(round=1)).delta, RFA()(CORNERS, Context(round=1)).delta)


@pytest.mark.parametrize("far", [1e3, 1e8, 1e17])
def test_one_far_row_does_not_carry_the_median_off(far: float) -> None:
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[4] += far
    delta = RFA(iterations=60)(Updates.from_layers({"w": rows}), Context(round=1)).delta
    assert (delta - rows[[0, 1, 2, 3, 5, 6, 7, 8]].mean(0)).norm() < 2


def test_a_median_on_a_row_is_found() -> None:
    rows = torch.tensor([[1.0, 2], [1, 2], [1, 2], [5, 5]])
    delta = RFA(iterations=50)(Updates.from_layers({"w": rows}), Context(round=1)).delta
    torch.testing.assert_close(delta, rows[0])


@pytest.mark.parametrize("value", [0.0, 1.0, 1e18])
def test_one_update_is_taken(value: float) -> None:
    verdict = RFA()(Updates.from_layers({"w": torch.full((1, 3), value, dtype=torch.float64)}), Context(round=1))
    assert verdict.delta.tolist() == [value] * 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"iterations": 0}, "iterations must be 1 or more, got 0"),
        ({"smoothing": 0.0}, r"smoothing must be a positive length, got 0\.0"),
        ({"smoothing": float("nan")}, "smoothing must be a positive length, got nan"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        RFA(**settings)  # type: ignore[arg-type]
