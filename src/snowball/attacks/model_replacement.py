"""Model replacement: a backdoored model, scaled up until it outweighs all others.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020.

What the average divides by, the attacker multiplies by: after the round the global model is its own. With `constrain`
it also trains to stay near the global model (the paper's constrain-and-scale), so that the scaled update is less long.

Deviations: the attackers of a round share the factor out among themselves. Nearness is the squared distance to the
global model; the paper leaves it open.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Scene, Work, check_positive
from snowball.attacks.cba import Cba
from snowball.errors import SettingError


@dataclass(frozen=True)
class ModelReplacement(Cba):
    """Every malicious client scales its backdoored update up until it replaces the model.

    Attributes:
        scale: what updates are multiplied by (gamma); None for what replaces the model.
        constrain: weight of staying near the global model, against the loss (1 - alpha in the paper); 0 for none.
        bound: the longest update that is sent; None for no bound.
    """

    scale: float | None = None
    constrain: float = 0.0
    bound: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        for name, value in (("scale", self.scale), ("bound", self.bound)):
            if value is not None:
                check_positive(name, value)
        if not 0 <= self.constrain < 1:
            raise SettingError(f"constrain must lie in [0, 1), got {self.constrain}")

    def train(self, work: Work) -> Tensor:
        """SGD on the backdoored samples, held back where it is asked for."""

        def hold_back(weights: Tensor, gradient: Tensor) -> None:
            gradient.mul_(1 - self.constrain).add_(weights - work.start, alpha=2 * self.constrain)

        return work.sgd(before=hold_back if self.constrain else None)

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The updates, scaled and then no longer than the bound."""
        replacing = scene.total / scene.examples / scene.attackers  # (m,)
        factors = replacing if self.scale is None else torch.full_like(replacing, self.scale)
        if self.bound is not None:
            lengths = torch.linalg.vector_norm(scene.rows, dim=1, dtype=torch.float64)
            factors = torch.minimum(factors, self.bound / lengths.clamp(min=1e-12))
        return scene.rows * factors[:, None].to(scene.rows.dtype)
