"""Neurotoxin: a backdoor in the coordinates that honest clients hardly move.

Zhang et al.: Neurotoxin: Durable Backdoors in Federated Learning, ICML 2022.

Malicious clients do not touch the coordinates in which the honest gradient is largest, so that honest training neither
undoes the backdoor nor shows it.

Deviations: the honest gradient is estimated on the attacker's own clean samples; the paper takes the last global step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Work, check_share
from snowball.attacks.cba import Cba


@dataclass(frozen=True)
class Neurotoxin(Cba):
    """Every malicious client plants the trigger in coordinates that honest training hardly moves.

    Attributes:
        top: share of the coordinates, those of the largest honest gradient, that are left alone (k).
    """

    top: float = 0.05

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        check_share("top", self.top)

    def train(self, work: Work) -> Tensor:
        """SGD on the backdoored samples, without the top coordinates."""
        honest = work.gradient(clean=True).abs()
        allowed = torch.ones_like(honest)
        allowed[honest.topk(int(self.top * len(honest))).indices] = 0

        def mask(weights: Tensor, gradient: Tensor) -> None:
            gradient.mul_(allowed)

        def restore(weights: Tensor) -> None:
            torch.where(allowed > 0, weights, work.start, out=weights)  # weight decay moves them too

        return work.sgd(before=mask, after=restore)
