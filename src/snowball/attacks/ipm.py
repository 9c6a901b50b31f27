"""Inner product manipulation: the negated honest mean.

Xie, Koyejo, Gupta: Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation, UAI 2019.

A small negative multiple of the honest mean is inconspicuous and slows training down; a large one undoes it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView
from snowball.attacks.poisoning import Untargeted, check_positive, select_honest_rows


@dataclass(frozen=True)
class IPM(Untargeted):
    """All malicious clients send a negative multiple of the honest mean.

    Attributes:
        strength: the factor before negation (epsilon): 0.1 hides, 100 destroys.
    """

    strength: float = 0.5

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        check_positive("strength", self.strength)

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the negated mean of the honest updates, or of the attackers' if there are none."""
        return (-self.strength * select_honest_rows(view).mean(0)).expand_as(view.rows)
