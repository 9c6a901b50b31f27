"""FLARE: models vote for those that see the server's samples as they do.

Wang, Xiao, Chen, Hu, Lou, Hou, "FLARE: Defending Federated Learning against Model Poisoning Attacks via Latent Space
Representations", AsiaCCS 2022. The server runs every client's model on a few clean samples and keeps the inputs of its
output layer. The maximum mean discrepancy between these sets of points says how differently two models see the samples.
Every client votes for the half of the others that is nearest to it, and updates are averaged by trust, which grows with
the votes.

Deviations: samples of all classes are used, as the server has drawn them; public copies use those of one class. Trust
is exponential in the votes, as in two public copies, which differ in the temperature; `weighting` can make it
proportional to them. Discrepancies are not cut off at zero, where they would be ties; lots break those that remain.
"""

from dataclasses import dataclass
from math import floor
from typing import Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, Model, Verdict, require
from snowball.defenses.ops import count_rows, rank_lowest
from snowball.errors import SettingError
from snowball.updates import Updates

Weighting = Literal["exponential", "votes"]

LARGEST_FEATURE = 1e15
"""Size up to which features are compared; with it, those of a broken model are merely far from all others."""

DECIMALS = 12
"""Decimals of a discrepancy that are not rounding errors."""


@dataclass(frozen=True)
class FLARE:
    """Average all updates by the votes of the models that see the server's samples as theirs does.

    Attributes:
        inspected_examples: number of clean samples that the server runs the models on.
        nearest: share of all clients that each one votes for, rounded down to one at least.
        weighting: "exponential" or "votes": how trust grows with the votes.
        temperature: votes, as a multiple of their mean, that make trust e times as high; for "exponential".
    """

    inspected_examples: int = 100
    nearest: float = 0.5
    weighting: Weighting = "exponential"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.inspected_examples < 2:
            raise SettingError(f"inspected_examples must be 2 or more, got {self.inspected_examples}")
        if not 0 < self.nearest <= 1:
            raise SettingError(f"nearest must be a share in (0, 1], got {self.nearest}")
        if self.weighting not in get_args(Weighting):
            raise SettingError(f"weighting must be one of {', '.join(get_args(Weighting))}, got {self.weighting!r}")
        if not 0 < self.temperature < float("inf"):
            raise SettingError(f"temperature must be above 0 and finite, got {self.temperature}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Run the models, let them vote, and average by trust."""
        model, samples = require(context.model, "model", "flare"), require(context.samples, "samples", "flare")
        features = collect_features(updates, require(context.base, "base", "flare"), model, samples)
        wanted = min(max(1, count_rows(self.nearest, len(updates), floor)), len(updates) - 1)
        votes = count_votes(compare_features(features), wanted, context.draw_lots(updates.clients))
        trust = self._compute_trust(votes)
        return Verdict(updates.mean(trust), trust > 0, {"votes": votes, "weights": trust / trust.sum()})

    def _compute_trust(self, votes: Tensor) -> Tensor:
        """Return the (n,) weights of the updates, of any sum."""
        if not votes.any():  # a single update
            return torch.ones_like(votes)
        if self.weighting == "votes":
            return votes
        return (votes / (self.temperature * votes.mean())).softmax(0)


def collect_features(updates: Updates, base: Tensor, model: Model, samples: Tensor) -> Tensor:
    """Return the (n, m, f) features of m samples in the clients' models; finite for any rows."""
    seen = [model.compute_features((base + row).to(base.dtype), samples) for row in updates.rows]
    return torch.stack(seen).nan_to_num(0, LARGEST_FEATURE, -LARGEST_FEATURE).clamp(-LARGEST_FEATURE, LARGEST_FEATURE)


def compare_features(features: Tensor) -> Tensor:
    """Return the (n, n) squared maximum mean discrepancies between sets of points, (n, m, f); zero on the diagonal.

    The kernel is exp(-|x - y|^2 / f), and the estimate has no bias: it leaves out the points' products with themselves.
    """
    count, points, _ = features.shape
    within, across = torch.zeros(count, dtype=torch.float64), torch.zeros(count, count, dtype=torch.float64)
    for row, own in enumerate(features):
        for other in range(row, count):
            kernel = compute_kernel(own, features[other])  # (m, m)
            across[row, other] = across[other, row] = kernel.mean()
            if other == row:
                within[row] = (kernel.sum() - kernel.trace()) / (points * (points - 1))
    return (within[:, None] + within - 2 * across).round(decimals=DECIMALS).fill_diagonal_(0)


def compute_kernel(one: Tensor, other: Tensor) -> Tensor:
    """Return the (m, k) values of the Gaussian kernel between (m, f) and (k, f) points."""
    return (-(torch.cdist(one.double(), other.double()) ** 2) / one.shape[1]).exp()


def count_votes(distances: Tensor, wanted: int, lots: Tensor) -> Tensor:
    """Return each row's (n,) votes, where every row votes for this many others nearest to it; lots break ties."""
    votes = torch.zeros(len(distances), dtype=torch.float64)
    for row, distance in enumerate(distances):
        ranked = rank_lowest(distance, lots)
        votes[ranked[ranked != row][:wanted]] += 1
    return votes
