"""Multi-metrics: score models by three distances at once, each weighted by how it varies and goes with the others.

Huang, Li, Chen, Shi, Gao, "Multi-metrics Adaptively Identifies Backdoors in Federated Learning", ICCV 2023. A backdoor
stands out in the direction of its model, in its length or in many small entries, and nobody knows in which. So each
client has the sums t of its cosine, Manhattan and length differences to all others, and its score is t' C^-1 t with the
covariance C of these sums: a metric counts less the more it varies, and what two metrics share counts once.

Deviations: a covariance without an inverse, as of fewer than four updates, has its pseudoinverse. Ties are decided by
lot. The metrics are those of the authors' code, in which differences of cosines are squared.
"""

from dataclasses import dataclass
from math import floor
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.defenses.ops import average_by_examples, compute_cosines, count_rows, elect_lowest
from snowball.errors import SettingError
from snowball.updates import Updates

LEAST_VARIANCE = 1e-9
"""Share of the largest variance up to which a direction of the metrics has none but rounding."""


@dataclass(frozen=True)
class MultiMetrics:
    """Average the updates with the lowest scores, weighted by examples.

    Attributes:
        keep: share of the updates to average, rounded down to one at least (the paper's p).
    """

    min_updates: ClassVar[int] = 3
    keep: float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 < self.keep <= 1:
            raise SettingError(f"keep must be a share in (0, 1], got {self.keep}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Score every update and elect the lowest scores."""
        metrics = measure_differences(updates, require(context.base, "base", "multi-metrics"))  # (n, 3)
        scores = score_metrics(metrics)
        count = max(1, count_rows(float(self.keep), len(updates), floor))
        elected = elect_lowest(scores, count, context.draw_lots(updates.clients))
        facts = dict(zip(("cosines", "manhattan", "length"), metrics.T, strict=True))
        return Verdict(average_by_examples(updates, elected), elected, {"scores": scores, **facts})


def measure_differences(updates: Updates, base: Tensor) -> Tensor:
    """Return each model's (n, 3) sums of squared cosine distances, Manhattan distances and differences in length."""
    products = updates.products_about(-base)  # those of whole models
    lengths = products.diagonal().clamp(min=0).sqrt()
    cosines = (1 - compute_cosines(products)).fill_diagonal_(0) ** 2
    differences = (lengths[:, None] - lengths).abs()
    return torch.stack([cosines.sum(1), sum_manhattan_distances(updates), differences.sum(1)], 1)


def sum_manhattan_distances(updates: Updates) -> Tensor:
    """Return each row's (n,) sum of absolute differences to all others."""
    pairs = torch.triu_indices(len(updates), len(updates), 1)
    distances = torch.zeros(pairs.shape[1], dtype=torch.float64)
    for _, block in updates.read_blocks(slice(0, updates.layout.width)):
        distances += torch.pdist(block, 1)
    sums = torch.zeros(len(updates), dtype=torch.float64)
    return sums.index_add(0, pairs[0], distances).index_add(0, pairs[1], distances)


def score_metrics(metrics: Tensor) -> Tensor:
    """Return the (n,) scores t' C^-1 t of (n, m) metrics t with covariance C; a metric without variance counts nothing.

    Metrics are divided by their standard deviations first, which leaves scores as they are and numbers comparable.
    """
    spread = metrics.std(0, correction=0)
    scaled = metrics / spread.where(spread > 0, torch.inf)
    covariance = scaled.T.cov(correction=1 if len(scaled) > 1 else 0)
    inverse = torch.linalg.pinv(covariance, rtol=LEAST_VARIANCE, hermitian=True)
    scores: Tensor = ((scaled @ inverse) * scaled).sum(1)
    return scores
