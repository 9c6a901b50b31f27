"""Indicators: values that attackers plant in idle weights, and read again from the next global model.

They tell what became of each update, and are the feedback of `3dfed`. All functions are of numbers alone.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.layout import Layout

REJECTED, CLIPPED, ACCEPTED = 0, 1, 2
"""What became of an update."""

LEAST_SHARE = 0.2
"""The part of its share in a plain average up to which an update counts as rejected: others move its weight, too."""

CLIPPED_SHARE = 0.8
"""The part of the largest feedback up to which an update counts as clipped."""

ACCEPTED_SHARE = 0.8
"""The share of a group's updates that must be accepted for the group to count as accepted."""


def find_indicator_layer(layout: Layout) -> str:
    """Return the last convolution; without one, the weight layer before the output layer, or the only one."""
    sizes = dict(zip(layout.names, layout.shapes, strict=True))
    filters = [name for name in layout.weights if len(sizes[name]) > 2]
    return filters[-1] if filters else layout.weights[-min(2, len(layout.weights))]


def measure_curvature(model: nn.Module, weight: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the sums of the rows of the loss's second derivatives in one weight of the model, flattened."""
    loss = cross_entropy(model(inputs), labels)
    (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
    (curvature,) = torch.autograd.grad(gradient.sum(), weight)
    return curvature.flatten()


def choose_idle_columns(rows: Tensor, candidates: Tensor) -> Tensor:
    """Return one of the candidate columns for each of (m, d) rows: those that the rows together move least."""
    moved = rows[:, candidates].abs().sum(0)
    return candidates[moved.argsort(stable=True)[: len(rows)]]


def measure_feedback(before: Tensor, after: Tensor, values: Tensor, shares: Tensor) -> Tensor:
    """Return how much of each planted value has arrived, (m,), where 1 is what a plain average would let through."""
    expected = values.double() * shares.double()
    return torch.where(expected != 0, (after.double() - before.double()) / expected.where(expected != 0, 1), 0)


def is_noisy(feedback: Tensor, shares: Tensor) -> bool:
    """Return whether a server adds noise: more than all of a value has arrived, or clearly the opposite of it."""
    return bool((feedback * shares > 1).any() or (feedback < -LEAST_SHARE).any())


def classify_feedback(feedback: Tensor) -> Tensor:
    """Return what became of each update, (m,)."""
    clipped = feedback <= CLIPPED_SHARE * feedback.max()
    found = torch.where(clipped, CLIPPED, ACCEPTED)
    return found.where(feedback > LEAST_SHARE, REJECTED)


def find_accepted_groups(results: Tensor, groups: Tensor) -> list[int]:
    """Return the groups, numbered from 0, whose updates were mostly accepted; a negative number is no group."""
    numbers = sorted({number for number in groups.tolist() if number >= 0})
    return [
        number for number in numbers if float((results[groups == number] == ACCEPTED).double().mean()) >= ACCEPTED_SHARE
    ]


def count_decoys(decoys: int, results: Tensor, is_decoy: Tensor) -> int:
    """Return how many decoys the next round needs: fewer by those that were accepted, one more if nobody was."""
    accepted = int((results[is_decoy] == ACCEPTED).sum())
    left = max(0, decoys - accepted)
    return left + int(not accepted and bool((results[~is_decoy] == REJECTED).all()))


def count_entries(layout: Layout, name: str) -> int:
    """Return the number of weights in a layer."""
    return prod(layout.shapes[layout.names.index(name)])


def draw_weights(
    accepted: Sequence[float], all_accepted: bool, groups: int, least: float, rng: torch.Generator
) -> list[float]:
    """Draw each group's weight of noise: near those that were accepted, anywhere above `least` if none was.

    The smallest two of them bound the draw if all groups were accepted; otherwise it is from the smallest one to a
    tenth more.
    """
    ordered = sorted(accepted)
    if not ordered:
        low, high = least, 1.0
    elif all_accepted:
        low, high = ordered[0], ordered[min(1, len(ordered) - 1)]
    else:
        low, high = ordered[0], ordered[0] + 0.1
    drawn = low + (high - low) * torch.rand(groups, generator=rng, dtype=torch.float64)
    weights: list[float] = drawn.clamp(0.01, 0.99).tolist()
    return weights
