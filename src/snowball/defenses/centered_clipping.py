"""Centered clipping: clip every update's distance from the last aggregate.

Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021. The server starts from its
last aggregate v and takes the mean of the steps from v to the updates, none longer than a radius tau. An attacker moves
the aggregate by tau / n at most, and has to do so in every round, since the centre remembers where the others went.

Deviations: the paper clips clients' momenta, whose length it knows, at a fixed radius; updates have any length, and at
a radius too large this is the mean. So the radius is the median distance from the centre unless a setting fixes it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict
from snowball.defenses.history import check_numbers, describe_damage, is_row
from snowball.defenses.norm_clip import check_bound
from snowball.defenses.ops import compute_clip_factors, elect_everyone
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates


@dataclass(frozen=True)
class CenteredClipping:
    """Take the mean of the updates after clipping their distances from the last aggregate.

    Attributes:
        bound: the maximum distance (the paper's tau); None takes the median distance of the updates in each iteration.
        iterations: steps of clipping and averaging, each around the result of the step before (the paper's L).
    """

    min_updates: ClassVar[int] = 3
    bound: float | None = None
    iterations: int = 1

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.bound is not None:
            check_bound(self.bound)
        if self.iterations < 1:
            raise SettingError(f"iterations must be 1 or more, got {self.iterations}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Step from the last aggregate towards the updates."""
        center = context.state["center"] if context.state else torch.zeros(updates.layout.width)
        center = center.to(updates.dtype)
        for _ in range(self.iterations):
            distances = measure_distances(updates, center)
            bound = float(distances.quantile(0.5)) if self.bound is None else self.bound
            weights = compute_clip_factors(distances, bound) / len(updates)
            center = updates.combine(weights) + (1 - float(weights.sum())) * center
        return Verdict(center, elect_everyone(updates), {"distances": distances, "bound": bound}, {"center": center})

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state without a finite aggregate."""
        if not is_row(state.get("center"), layout.width):
            raise describe_damage(f"its last aggregate is not {layout.width} numbers")
        check_numbers([state["center"]])


def measure_distances(updates: Updates, point: Tensor) -> Tensor:
    """Return the rows' (n,) distances from a (d,) point."""
    square = torch.linalg.vector_norm(point, dtype=torch.float64) ** 2
    squared: Tensor = updates.squared_norms - 2 * updates.dot(point) + square
    return squared.clamp(min=0).sqrt()
