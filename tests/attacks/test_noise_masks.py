import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from snowball.attacks.noise_masks import SCALES, choose_neurons, choose_scale, draw_masks
from snowball.rng import stream

UPDATES = 0.02 * torch.randn(3, 4, 30, generator=stream(0, "updates"))
MASKS = draw_masks(3, 4, 30, stream(1))


@pytest.mark.parametrize("members", [2, 3, 7])
def test_masks_cancel_out_and_have_size_one(members: int) -> None:
    masks = draw_masks(members, 4, 30, stream(0))
    torch.testing.assert_close(masks.sum(0), torch.zeros(4, 30).double(), atol=1e-12, rtol=0)
    assert float(masks.square().mean()) == pytest.approx(1)


def test_the_mask_of_one_is_zero() -> None:
    assert not draw_masks(1, 4, 30, stream(0)).any()


def measure_loss(scale: float, weight: float) -> float:
    """Measure what a scale costs, neuron by neuron in NumPy; in units of the updates' root mean square."""
    updates, masks = UPDATES.double().numpy(), MASKS.numpy()
    unit = np.sqrt((updates**2).mean())
    hiding = [1 / np.abs(u / unit + scale * m).mean() for row, mask in zip(updates, masks, strict=True)
              for u, m in zip(row, mask, strict=True)]  # fmt: skip
    return float(weight * np.mean(hiding) + (1 - weight) * scale * np.sqrt((masks**2).mean()))


@pytest.mark.parametrize("weight", [0.3, 0.5, 0.8])
def test_the_scale_is_the_best_one(weight: float) -> None:
    """scipy finds it between those that are tried, which are a twentieth of a power of ten apart."""
    unit = float(UPDATES.square().mean().sqrt())
    found = choose_scale(UPDATES, MASKS, weight) / unit
    best = minimize_scalar(lambda scale: measure_loss(scale, weight), bounds=(0.01, 10), method="bounded")
    assert abs(np.log10(found / best.x)) < 0.5 / 20 + 1e-6


def test_more_weight_of_hiding_means_more_noise() -> None:
    scales = [choose_scale(UPDATES, MASKS, weight) for weight in (0.01, 0.3, 0.6, 0.99)]
    assert scales == sorted(scales)
    assert scales[0] < scales[-1]
    assert choose_scale(1000 * UPDATES, MASKS, 0.5) == pytest.approx(1000 * choose_scale(UPDATES, MASKS, 0.5))


def test_updates_of_zero_get_next_to_no_noise() -> None:
    assert 0 <= choose_scale(torch.zeros(2, 3, 5), draw_masks(2, 3, 5, stream(0)), 0.5) <= 1e-11 * float(SCALES[-1])


def test_the_neuron_of_the_target_has_no_noise() -> None:
    drawn = {tuple(sorted(choose_neurons(5, 2, 3, stream(seed)).tolist())) for seed in range(30)}
    assert drawn == {(0, 1, 3), (0, 1, 4), (0, 3, 4), (1, 3, 4)}
    assert sorted(choose_neurons(5, 2, 99, stream(0)).tolist()) == [0, 1, 3, 4]
    assert choose_neurons(1, 0, 8, stream(0)).tolist() == []
