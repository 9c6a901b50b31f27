"""Limited-memory BFGS: estimates how a gradient changes along a step from the last few steps.

Byrd, Nocedal, Schnabel, "Representations of quasi-Newton matrices and their use in limited memory methods",
Mathematical Programming 1994: the product with the approximate Hessian needs a linear system with twice as many
unknowns as there are steps, and no matrix of the model's size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from snowball.defenses.history import compute_inner_products


@dataclass(frozen=True, eq=False)
class Hessian:
    """The approximate Hessian B of a loss, from steps in its domain and the change of the gradient in each step.

    Multiplying all changes by a number multiplies B by the same number, so updates can be used as gradients.

    Attributes:
        steps: (d,) rows s, the latest last.
        changes: (d,) rows y, one per step.
    """

    steps: Sequence[Tensor]
    changes: Sequence[Tensor]

    @cached_property
    def _products(self) -> Tensor:
        return compute_inner_products([*self.steps, *self.changes])  # (2m, 2m)

    @cached_property
    def scale(self) -> float:
        """The curvature of the latest step (sigma), used in directions that no step has taken; 0 without steps."""
        last = len(self.steps) - 1
        square = float(self._products[last, last]) if self.steps else 0.0
        return float(self._products[last, -1]) / square if square > 0 else 0.0

    @cached_property
    def _inverse(self) -> Tensor:
        """The pseudo-inverse of the system's (2m, 2m) matrix, computed in units in which no entry exceeds 1."""
        count = len(self.steps)
        crossed = self._products[:count, count:]  # s·y
        lower = crossed.tril(-1)
        top = torch.cat([self.scale * self._products[:count, :count], lower], 1)
        matrix = torch.cat([top, torch.cat([lower.T, -crossed.diagonal().diag()], 1)])
        largest = matrix.abs().amax(1)
        units = largest.where(largest > 0, 1).rsqrt()
        inverse: Tensor = torch.linalg.pinv(units[:, None] * matrix * units, rtol=1e-12, hermitian=True)
        return units[:, None] * inverse * units

    def times(self, vector: Tensor) -> Tensor:
        """Return B times a (d,) vector, in float64; zero if nothing is known yet."""
        result = self.scale * vector.to(torch.float64)
        if not self.scale:
            return result
        rows = [*self.steps, *self.changes]
        factors = torch.ones(len(rows), dtype=torch.float64)
        factors[: len(self.steps)] = self.scale
        along = torch.stack([row.to(torch.float64) @ vector.to(torch.float64) for row in rows])
        for weight, row in zip((factors * (self._inverse @ (factors * along))).tolist(), rows, strict=True):
            result.sub_(row, alpha=weight)
        return result
