"""Projected gradient descent: a backdoored update that is never longer than a radius.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019; Wang et al., NeurIPS 2020.

After every step the model is brought back into a ball around the global one, so that clipping has nothing to clip.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Work, check_positive
from snowball.attacks.cba import Cba


@dataclass(frozen=True)
class Pgd(Cba):
    """Every malicious client keeps its backdoored model within a ball around the global one.

    Attributes:
        radius: of the ball (delta).
    """

    radius: float = 2.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        check_positive("radius", self.radius)

    def train(self, work: Work) -> Tensor:
        """SGD with a projection after every step."""

        def project(weights: Tensor) -> None:
            away = weights - work.start
            length = float(torch.linalg.vector_norm(away))
            if length > self.radius:
                weights.copy_(work.start + away * (self.radius / length))

        return work.sgd(after=project)
