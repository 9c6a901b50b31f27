"""Projected gradient descent: a backdoored update within a radius.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019; Wang et al., NeurIPS 2020.

After every step the model is projected into a ball around the global model, so that clipping has no effect.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_positive


@dataclass(frozen=True)
class PGD(CBA):
    """Every malicious client keeps its backdoored model within a ball around the global one.

    Attributes:
        radius: radius of the ball (delta).
    """

    radius: float = 2.0

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        check_positive("radius", self.radius)

    def train(self, session: LocalSession) -> Tensor:
        """Train with a projection after every step."""

        def project(weights: Tensor) -> None:
            project_into_ball(weights, session.start, self.radius)

        return session.train(after=project)


def project_into_ball(weights: Tensor, centre: Tensor, radius: float) -> None:
    """Move weights in place to the nearest point of a ball."""
    away = weights - centre
    length = float(torch.linalg.vector_norm(away))
    if length > radius:
        weights.copy_(centre + away * (radius / length))
