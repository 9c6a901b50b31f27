"""Min-Sum: the summed distance to honest updates stays within that of an honest update.

Shejwalkar, Houmansadr: Manipulating the Byzantine, NDSS 2021.

Like Min-Max, but it bounds the sum of squared distances to all honest updates by the smallest such sum of an honest
update.

Deviations: the distance is computed exactly; the original finds it by bisection.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView
from snowball.attacks.min_max import MinMax, choose_direction
from snowball.attacks.poisoning import select_honest_rows


@dataclass(frozen=True)
class MinSum(MinMax):
    """All malicious clients send the honest mean, moved up to the summed distances of an honest update.

    The directions are those of Min-Max.
    """

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the moved mean for every attacker."""
        known = select_honest_rows(view)
        limit = float(torch.cdist(known, known).square().sum(1).min())
        return move_mean_in_sum(known, choose_direction(known, self.direction), limit).expand_as(view.rows)


def move_mean_in_sum(known: Tensor, direction: Tensor, limit: float) -> Tensor:
    """Move the mean, (d,), as far as its summed squared distances stay within a limit.

    About the mean the sum is n g^2 |p|^2 + the scatter of the rows: the terms linear in g cancel.
    """
    mean = known.mean(0)
    square = float(direction @ direction)
    scatter = float((known - mean).square().sum())
    if square == 0 or limit <= scatter:
        return mean
    reach: float = ((limit - scatter) / (len(known) * square)) ** 0.5
    return mean + reach * direction
