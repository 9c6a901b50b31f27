"""Min-Sum: as far from the honest mean as its summed distances stay those of an honest update.

Shejwalkar, Houmansadr: Manipulating the Byzantine, NDSS 2021.

As Min-Max, but what is bounded is the sum of squared distances to all honest updates, by the least such sum that an
honest update has.

Deviations: the distance is found exactly, where the original halves its way to it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Scene, honest
from snowball.attacks.min_max import MinMax, bad_direction


@dataclass(frozen=True)
class MinSum(MinMax):
    """All malicious clients send the honest mean, moved as far as its summed distances stay those of an honest update.

    The direction is chosen as in Min-Max.
    """

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The moved mean, for every attacker."""
        known = honest(scene)
        limit = float(torch.cdist(known, known).square().sum(1).min())
        return moved_in_sum(known, bad_direction(known, self.direction), limit).expand_as(scene.rows)


def moved_in_sum(known: Tensor, direction: Tensor, limit: float) -> Tensor:
    """(d,) the mean, moved as far as its summed squared distances stay within a limit.

    About the mean the sum is n g^2 |p|^2 + the scatter of the rows: what is linear in g adds up to nothing.
    """
    mean = known.mean(0)
    square = float(direction @ direction)
    scatter = float((known - mean).square().sum())
    if square == 0 or limit <= scatter:
        return mean
    reach: float = ((limit - scatter) / (len(known) * square)) ** 0.5
    return mean + reach * direction
