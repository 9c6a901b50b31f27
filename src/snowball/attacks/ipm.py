"""Inner product manipulation: the honest mean, backwards.

Xie, Koyejo, Gupta: Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation, UAI 2019.

A small negative multiple of the honest mean looks like nothing and slows training down; a large one undoes it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Scene, Untargeted, check_positive, honest


@dataclass(frozen=True)
class Ipm(Untargeted):
    """All malicious clients send the honest mean, backwards.

    Attributes:
        strength: what it is multiplied by (epsilon): 0.1 hides, 100 destroys.
    """

    strength: float = 0.5

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        check_positive("strength", self.strength)

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The mean of what honest clients send, or attackers where there are none, backwards."""
        return (-self.strength * honest(scene).mean(0)).expand_as(scene.rows)
