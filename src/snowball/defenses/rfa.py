"""RFA: take the geometric median instead of the mean.

Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing 2022.
The geometric median is the point with the smallest sum of distances to the updates, each distance weighted by the
client's examples. Updates with less than half of the weight, however far away, cannot move it arbitrarily far.
Weiszfeld's iteration finds it as an average that weights each update by the inverse of its distance to the last
average.

Deviations: a fixed number of iterations, without the stopping rule of the authors' code. The iteration runs on weights
alone, with distances from inner products, so its cost does not depend on the model's size.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class RFA:
    """Take the geometric median of all updates, weighted by examples.

    Attributes:
        iterations: steps of Weiszfeld's iteration, starting at the mean (the paper's R, 3 in its experiments).
        smoothing: the smallest distance; shorter ones are raised to it (the paper's nu).
    """

    min_updates: ClassVar[int] = 3
    iterations: int = 10
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.iterations < 1:
            raise SettingError(f"iterations must be 1 or more, got {self.iterations}")
        if not 0 < self.smoothing < float("inf"):
            raise SettingError(f"smoothing must be a positive length, got {self.smoothing}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Find the weights of the geometric median."""
        weights = self._weiszfeld(updates.products(), updates.examples.double())
        return Verdict(updates.mean(weights), elect_everyone(updates), {"weights": weights})

    def _weiszfeld(self, products: Tensor, sizes: Tensor) -> Tensor:
        """Return (n,) weights that sum to one, from the rows' (n, n) inner products about any point."""
        sizes = sizes / sizes.max()  # first, so that no sum of huge counts overflows
        weights = sizes / sizes.sum()
        for _ in range(self.iterations):
            weights = sizes / compute_distances(products, weights).clamp(min=self.smoothing)
            weights = weights / weights.sum()
        return weights


def compute_distances(products: Tensor, weights: Tensor) -> Tensor:
    """Return the rows' (n,) distances from their weighted average; the weights sum to one."""
    along = products @ weights
    return (weights @ along - 2 * along + products.diagonal()).clamp(min=0).sqrt()
