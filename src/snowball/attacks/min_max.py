"""Min-Max: no farther from any honest update than two honest updates are from each other.

Shejwalkar, Houmansadr: Manipulating the Byzantine, NDSS 2021.

All attackers send the honest mean, moved in a harmful direction. They move it as far as its distance to every honest
update stays below the largest distance between two honest updates.

Deviations: the distance is computed exactly; the original finds it by bisection.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView
from snowball.attacks.poisoning import Untargeted, select_honest_rows
from snowball.errors import SettingError

Direction = Literal["unit", "sign", "deviation"]


@dataclass(frozen=True)
class MinMax(Untargeted):
    """All malicious clients send the honest mean, moved by up to the largest distance between honest updates.

    Attributes:
        direction: the negative of the unit mean ("unit"), its signs ("sign") or the honest deviation ("deviation").
    """

    direction: Direction = "deviation"

    def __post_init__(self) -> None:
        """Reject an unknown direction."""
        if self.direction not in ("unit", "sign", "deviation"):
            raise SettingError(f"direction {self.direction!r} is not one of unit, sign, deviation")

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the moved mean for every attacker."""
        known = select_honest_rows(view)
        limit = float(torch.cdist(known, known).max()) ** 2
        return move_mean(known, choose_direction(known, self.direction), limit).expand_as(view.rows)


def choose_direction(known: Tensor, direction: Direction) -> Tensor:
    """Return the direction in which the mean is moved, (d,)."""
    mean = known.mean(0)
    length = torch.linalg.vector_norm(mean).clamp(min=1e-12)
    spread = known.std(0, correction=0)
    directions: dict[str, Tensor] = {"unit": mean / length, "sign": mean.sign(), "deviation": spread}
    return -directions[direction]


def move_mean(known: Tensor, direction: Tensor, limit: float) -> Tensor:
    """Move the mean, (d,), as far as its squared distance to every row stays within a limit.

    |mean + g p - row|^2 = g^2 |p|^2 + 2 g p (mean - row) + |mean - row|^2 is a parabola in g for each row; the largest
    g that all allow is the smallest of their larger roots.
    """
    mean = known.mean(0)
    away = mean - known
    square = float(direction @ direction)
    if square == 0:
        return mean
    slope, rest = away @ direction / square, (away.square().sum(1) - limit) / square
    reach = (slope.square() - rest).clamp(min=0).sqrt() - slope
    return mean + reach.min().clamp(min=0) * direction
