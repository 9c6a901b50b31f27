"""Neurotoxin: a backdoor in the coordinates that honest clients rarely change.

Zhang et al.: Neurotoxin: Durable Backdoors in Federated Learning, ICML 2022.

Malicious clients avoid the coordinates in which the honest gradient is largest, so that honest training neither undoes
nor reveals the backdoor.

Deviations: the honest gradient is estimated on the attacker's own clean samples; the paper uses the last global step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_share


@dataclass(frozen=True)
class Neurotoxin(CBA):
    """Every malicious client plants the trigger in coordinates that honest training rarely changes.

    Attributes:
        top: share of the coordinates, those with the largest honest gradient, that stay unchanged (k).
    """

    top: float = 0.05

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        check_share("top", self.top)

    def train(self, session: LocalSession) -> Tensor:
        """Train on the poisoned samples without the top coordinates."""
        honest = session.compute_gradient(clean=True).abs()
        allowed = torch.ones_like(honest)
        allowed[honest.topk(int(self.top * len(honest))).indices] = 0

        def mask(weights: Tensor, gradient: Tensor) -> None:
            gradient.mul_(allowed)

        def restore(weights: Tensor) -> None:
            torch.where(allowed > 0, weights, session.start, out=weights)  # weight decay changes them too

        return session.train(before=mask, after=restore)
