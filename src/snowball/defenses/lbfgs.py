"""Limited-memory BFGS: how a gradient changes along a step, learnt from the last few steps.

Byrd, Nocedal, Schnabel, "Representations of quasi-Newton matrices and their use in limited memory methods",
Mathematical Programming 1994: the product with the approximate Hessian needs a linear system in twice as many unknowns
as there are steps, and no matrix of the model's size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from snowball.defenses.history import compute_inner_products


@dataclass(frozen=True, eq=False)
class Hessian:
    """The approximate Hessian B of a loss, from steps in its domain and what each changed in the gradient.

    Multiplying all changes by a number multiplies B by it, so updates may stand for gradients.

    Attributes:
        steps: (d,) rows s, the latest last.
        changes: (d,) rows y, one a step.
    """

    steps: Sequence[Tensor]
    changes: Sequence[Tensor]

    @cached_property
    def _products(self) -> Tensor:
        return compute_inner_products([*self.steps, *self.changes])  # (2m, 2m)

    @cached_property
    def scale(self) -> float:
        """The latest step's curvature (sigma), which holds where no step has led; 0 where there was no step."""
        last = len(self.steps) - 1
        square = float(self._products[last, last]) if self.steps else 0.0
        return float(self._products[last, -1]) / square if square > 0 else 0.0

    @cached_property
    def _inverse(self) -> Tensor:
        """Of the system's (2m, 2m) matrix, in units in which no entry is above one; singular parts are left out."""
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
        """B times a vector (d,), in float64; zero where nothing is known."""
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
