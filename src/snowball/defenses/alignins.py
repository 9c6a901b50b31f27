"""AlignIns: leave out updates whose direction is unusual, as a whole or in the signs of their largest entries.

Xu, Zhang, Hu, "Detecting Backdoor Attacks in Federated Learning via Direction Alignment Inspection", CVPR 2025. Two
numbers describe an update's direction: its cosine to the global model (TDA), and the share of its largest entries whose
sign is the majority's (MPSA). Whoever deviates from the median of either by a standard deviation or more is left out,
to both sides, since a backdoor may also be aligned too well. The others are clipped to their median length.

Deviations: buffers such as batch normalisation's are no part of an update here. If nobody is left, the authors' code
keeps the global model; here the update that deviates least stays.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.defenses.ops import compute_clip_factors, elect_lowest
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class AlignIns:
    """Average the updates whose direction is usual, weighted by examples and clipped to their median length.

    Attributes:
        direction: deviation from the median cosine at which an update is left out, in standard deviations (the paper's
            lambda_c).
        signs: the same for the share of signs that agree with the majority's (the paper's lambda_s).
        largest: share of an update's entries, the largest ones, whose signs are compared (the paper's k / d).
    """

    min_updates: ClassVar[int] = 3
    direction: float = 1.0
    signs: float = 1.0
    largest: float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not (self.direction > 0 and self.signs > 0):
            raise SettingError(
                f"direction and signs must be positive deviations, got {self.direction} and {self.signs}"
            )
        if not 0 < self.largest <= 1:
            raise SettingError(f"largest must be a share in (0, 1], got {self.largest}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Leave out whoever deviates, clip and average."""
        direction = compute_deviations(measure_cosines(updates, require(context.base, "base", "alignins")))
        signs = compute_deviations(measure_sign_agreement(updates, self.largest))
        excess = torch.maximum(direction / self.direction, signs / self.signs)
        elected = excess < 1
        if not elected.any():
            elected = elect_lowest(excess, 1, context.draw_lots(updates.clients))
        norms = updates.squared_norms.sqrt()
        bound = float(norms[elected].quantile(0.5))
        weights = updates.normalise(updates.examples * elected) * compute_clip_factors(norms, bound)
        facts = {"direction": direction, "signs": signs, "norms": norms}
        return Verdict(updates.combine(weights), elected, {**facts, "bound": bound})


def measure_cosines(updates: Updates, base: Tensor) -> Tensor:
    """Return the (n,) cosines of the rows to the global model: the paper's TDA; 0 without a direction."""
    scale = updates.squared_norms.sqrt() * torch.linalg.vector_norm(base, dtype=torch.float64)
    return torch.where(scale > 0, updates.dot(base) / scale, 0)


def measure_sign_agreement(updates: Updates, share: float) -> Tensor:
    """Return the (n,) shares of the rows' largest entries whose sign is the majority's: the paper's MPSA."""
    count = max(1, int(share * updates.layout.width))
    majority = updates.reduce_columns(lambda block: block.sign().sum(1).sign())  # (d,) -1, 0 or 1
    agreeing = []
    for row in updates.rows:
        largest = row.abs().topk(count, sorted=False).indices
        agreeing.append((row[largest].sign() == majority[largest]).double().mean())
    return torch.stack(agreeing)


def compute_deviations(values: Tensor) -> Tensor:
    """Return the (n,) distances from the median in standard deviations; 0 if all values are equal."""
    spread = values.std(correction=0)
    return torch.where(spread > 0, (values - values.quantile(0.5)).abs() / spread, 0)
