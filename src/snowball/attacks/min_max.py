"""Min-Max: as far from the honest mean as the two honest updates that are farthest apart.

Shejwalkar, Houmansadr: Manipulating the Byzantine, NDSS 2021.

All attackers send the honest mean, moved in a bad direction as far as its distance to every honest update stays below
the largest distance between two of them.

Deviations: the distance is found exactly, where the original halves its way to it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from snowball.attacks.base import Scene, Untargeted, honest
from snowball.errors import SettingError

Direction = Literal["unit", "sign", "deviation"]


@dataclass(frozen=True)
class MinMax(Untargeted):
    """All malicious clients send the honest mean, moved as far as two honest updates are apart.

    Attributes:
        direction: "unit" against the mean, "sign" against its signs, "deviation" along the honest deviation.
    """

    direction: Direction = "deviation"

    def __post_init__(self) -> None:
        """Refuse a direction that is none."""
        if self.direction not in ("unit", "sign", "deviation"):
            raise SettingError(f"direction {self.direction!r} is not one of unit, sign, deviation")

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The moved mean, for every attacker."""
        known = honest(scene)
        limit = float(torch.cdist(known, known).max()) ** 2
        return moved(known, bad_direction(known, self.direction), limit).expand_as(scene.rows)


def bad_direction(known: Tensor, direction: Direction) -> Tensor:
    """(d,) where the mean is moved."""
    mean = known.mean(0)
    length = torch.linalg.vector_norm(mean).clamp(min=1e-12)
    spread = known.std(0, correction=0)
    directions: dict[str, Tensor] = {"unit": mean / length, "sign": mean.sign(), "deviation": spread}
    return -directions[direction]


def moved(known: Tensor, direction: Tensor, limit: float) -> Tensor:
    """(d,) the mean, moved as far as its squared distance to every row stays within a limit.

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
