"""CAF: the covariance-bound agnostic filter, which weighs down outliers until the updates hardly differ.

Allouah, Guerraoui, Stephan, "Towards Trustworthy Federated Learning with Untrusted Participants", ICML 2025. Attackers
that move the mean also stretch the updates along some direction. The filter finds the direction of largest variance,
reduces each update's weight by its share of the farthest one's squared deviation along it, and repeats until the
weights of n - 2f updates are left. The result is the weighted mean with the least variance in any direction on the way,
so no bound on the honest updates' variance needs to be known.

Deviations: the farthest update is one that still has weight; with a maximum over all updates, as in byzfl, an attacker
that is far enough keeps the loop from ever ending. The direction is exact, from the updates' inner products, where
byzfl takes one step of the power method from a random start.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.mixing import count_minority
from snowball.defenses.ops import check_count
from snowball.updates import Updates


@dataclass(frozen=True)
class CAF:
    """Average the updates with weights that fall with their deviation along the directions of largest variance.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f).
    """

    min_updates: ClassVar[int] = 3
    tolerate: int | float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_count("tolerate", self.tolerate)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Find the weights of the filter and average."""
        malicious = count_minority(self.tolerate, len(updates))
        weights = filter_rows(updates.products(), len(updates) - 2 * malicious)
        return Verdict(updates.mean(weights), weights > 0, {"weights": weights, "tolerated": malicious})


def filter_rows(products: Tensor, least: int) -> Tensor:
    """Return the (n,) weights of least variance on the way to a sum of `least`, from inner products about any point."""
    weights = found = torch.ones(len(products), dtype=torch.float64)
    lowest = torch.inf
    while float(weights.sum()) > least:
        variance, deviations = find_top_direction(products, weights / weights.sum())
        if variance < lowest:
            lowest, found = variance, weights
        farthest = deviations[weights > 0].max()
        if not farthest > 0:
            break
        weights = (weights * (1 - deviations / farthest)).clamp(min=0)  # at least the farthest row's becomes 0
    return found


def find_top_direction(products: Tensor, shares: Tensor) -> tuple[float, Tensor]:
    """Return the largest weighted variance along any direction, and the rows' (n,) squared deviations along it.

    The (n,) shares sum to 1. With centred products A and D = diag(shares), the variances are the eigenvalues of
    D^(1/2) A D^(1/2), and an eigenvector u of length 1 stands for the direction that the rows combine to with weights
    D^(1/2) u, which is sqrt(variance) long.
    """
    along = products @ shares
    centred = products - along - along[:, None] + shares @ along
    roots = shares.sqrt()
    variances, vectors = torch.linalg.eigh(roots[:, None] * centred * roots)  # ascending
    variance = float(variances[-1].clamp(min=0))
    components = centred @ (roots * vectors[:, -1])
    return variance, components**2 / variance if variance > 0 else torch.zeros_like(shares)
