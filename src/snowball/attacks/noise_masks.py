"""Noise that colluders add to the output layer and that cancels out in their mean.

It hides which class their updates have in common. All functions are of numbers alone.
"""

import torch
from torch import Tensor

SCALES = torch.logspace(-2, 1, 61, dtype=torch.float64)
"""The sizes of noise that are tried, as multiples of the update's root mean square: 20 per power of ten."""

SMALLEST_UPDATE = 1e-12
"""Added to the size of an update, which divides."""


def draw_masks(members: int, neurons: int, inputs: int, rng: torch.Generator) -> Tensor:
    """Draw Gaussian noise (members, neurons, inputs) whose sum over the members is zero, with root mean square 1."""
    drawn = torch.randn(members, neurons, inputs, generator=rng, dtype=torch.float64)
    masks = drawn - drawn.mean(0)
    return masks / masks.square().mean().sqrt().clamp(min=SMALLEST_UPDATE)


def choose_scale(updates: Tensor, masks: Tensor, weight: float) -> float:
    """Return the multiple of the masks that hides the updates best for its size; both are (members, neurons, inputs).

    In units of the updates' root mean square, it minimises weight * mean of 1 / u + (1 - weight) * size of the noise,
    where u is the mean absolute change of a neuron with its noise.
    """
    unit = updates.double().square().mean().sqrt() + SMALLEST_UPDATE
    masked = updates.double() / unit + SCALES[:, None, None, None] * masks
    changes = masked.abs().mean(3) + SMALLEST_UPDATE  # (scales, members, neurons)
    losses = weight * (1 / changes).mean((1, 2)) + (1 - weight) * SCALES * masks.square().mean().sqrt()
    return float(SCALES[losses.argmin()] * unit)


def choose_neurons(classes: int, target: int, count: int, rng: torch.Generator) -> Tensor:
    """Draw some output neurons, (count,), or as many as there are, but never the target's."""
    others = [neuron for neuron in range(classes) if neuron != target]
    return torch.tensor(others, dtype=torch.int64)[torch.randperm(len(others), generator=rng)[:count]]
