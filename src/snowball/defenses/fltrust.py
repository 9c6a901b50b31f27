"""FLTrust: weigh updates by their agreement with one that the server trained itself.

Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping", NDSS 2021. The server has
a few clean samples and trains on them as a client does. The trust score of an update is its cosine with the server's
update, or zero if that is negative. All updates are rescaled to the length of the server's and averaged by trust.

Deviations: the paper's global learning rate is 1. Cosines below 1e-9 count as rounding errors, not as trust. If no
client is trusted, the model stays as it is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class FLTrust:
    """Average the updates that agree with the server's own, rescaled to its length and weighted by agreement.

    Attributes:
        trusted_examples: number of clean samples that the server trains on (the size of the paper's root dataset).
    """

    trusted_examples: int = 100

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.trusted_examples < 1:
            raise SettingError(f"trusted_examples must be 1 or more, got {self.trusted_examples}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Score the updates against the server's, and average them by score."""
        trusted = require(context.trusted, "trusted", "fltrust")
        length = torch.linalg.vector_norm(trusted, dtype=torch.float64)
        lengths = updates.squared_norms.sqrt()
        trust = compute_trust(updates.dot(trusted), lengths * length)
        rescaled = torch.where(trust > 0, length / lengths.where(trust > 0, 1), 0)
        delta = updates.combine(trust * rescaled / trust.sum().clamp(min=1e-9))
        return Verdict(delta, trust > 0, {"trust": trust})


def compute_trust(products: Tensor, scale: Tensor) -> Tensor:
    """Return the (n,) cosines with the trusted row, from inner products and products of lengths; 0 if not positive."""
    cosines = torch.where(scale > 0, products / scale.where(scale > 0, 1), 0)
    return cosines.round(decimals=9).clamp(0, 1)
