"""Model replacement: a backdoored update, scaled up until it outweighs all others.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020.

The attacker multiplies by what the average divides by, so that the new global model is the attacker's. With `constrain`
it also trains to stay near the global model (the paper's constrain-and-scale), so that the scaled update is shorter.

Deviations: the attackers of a round divide the factor among themselves. Nearness is the squared distance to the global
model; the paper does not define it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_positive
from snowball.errors import SettingError


@dataclass(frozen=True)
class ModelReplacement(CBA):
    """Every malicious client scales its backdoored update up until it replaces the model.

    Attributes:
        scale: factor for updates (gamma); None computes the factor that replaces the model.
        constrain: weight of staying near the global model, relative to the loss (1 - alpha in the paper); 0 for none.
        bound: maximum length of the update that is sent; None for no bound.
    """

    scale: float | None = None
    constrain: float = 0.0
    bound: float | None = None

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name, value in (("scale", self.scale), ("bound", self.bound)):
            if value is not None:
                check_positive(name, value)
        if not 0 <= self.constrain < 1:
            raise SettingError(f"constrain must lie in [0, 1), got {self.constrain}")

    def train(self, session: LocalSession) -> Tensor:
        """Train on the poisoned samples, near the global model if `constrain` is set."""

        def pull_back(weights: Tensor, gradient: Tensor) -> None:
            gradient.mul_(1 - self.constrain).add_(weights - session.start, alpha=2 * self.constrain)

        return session.train(before=pull_back if self.constrain else None)

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Scale the updates, then limit them to the bound."""
        replacing = view.total_examples / view.examples / view.attacker_count  # (m,)
        factors = replacing if self.scale is None else torch.full_like(replacing, self.scale)
        if self.bound is not None:
            lengths = torch.linalg.vector_norm(view.rows, dim=1, dtype=torch.float64)
            factors = torch.minimum(factors, self.bound / lengths.clamp(min=1e-12))
        return view.rows * factors[:, None].to(view.rows.dtype)
