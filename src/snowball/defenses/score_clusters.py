"""Finds the number of clusters in scores with the gap statistic, and splits off the upper of two clusters.

Tibshirani, Walther, Hastie, "Estimating the number of clusters in a data set via the gap statistic", JRSS B 2001.
Clusters of numbers are intervals, so the best ones are found exactly, without a random start.
"""

import torch
from torch import Tensor

REFERENCES = 10
MOST_CLUSTERS = 7
LEAST_SCATTER = 1e-12
"""Scatter of numbers in 0..1 up to which it is nothing but rounding."""


def count_clusters(scores: Tensor, rng: torch.Generator) -> int:
    """Return the number of clusters of (n,) scores; 1 if all are equal up to rounding."""
    if scores.max() - scores.min() <= 1e-9 * scores.abs().max():
        return 1
    most = min(MOST_CLUSTERS, len(scores))
    observed = _log_scatter(_scale(scores), most)  # (most,)
    drawn = torch.rand(REFERENCES, len(scores), generator=rng, dtype=torch.float64)
    references = torch.stack([_log_scatter(numbers, most) for numbers in drawn])
    gap = references.exp().mean(0).log() - observed
    slack = references.std(0, correction=0) * (1 + 1 / REFERENCES) ** 0.5
    good = gap[:-1] - gap[1:] + slack[1:] >= 0
    return int(good.int().argmax()) + 1 if good.any() else most


def select_upper_cluster(scores: Tensor) -> Tensor:
    """Return an (n,) mask of the upper cluster in the best split of the scores into two."""
    ordered, rows = _scale(scores).sort()
    within = compute_scatter(ordered)
    last = (within[0, :-1] + within[1:, -1]).argmin()  # of the lower cluster
    return scores > scores[rows[last]]


def _scale(scores: Tensor) -> Tensor:
    """Rescale scores, which must not all be equal, to 0..1."""
    return (scores - scores.min()) / (scores.max() - scores.min())


def _log_scatter(numbers: Tensor, most: int) -> Tensor:
    return find_least_scatter(numbers, most).clamp(min=LEAST_SCATTER).log()


def find_least_scatter(numbers: Tensor, most: int) -> Tensor:
    """Return the (most,) minimum scatter within 1, 2, ... clusters of (n,) numbers in 0..1."""
    within = compute_scatter(numbers.sort().values)
    best = [within[0]]  # (n,) for the first 1, 2, ... numbers
    for _ in range(1, most):
        best.append((best[-1][:-1, None] + within[1:]).amin(0))  # over all starts of the last cluster
    return torch.stack(best)[:, -1]


def compute_scatter(ordered: Tensor) -> Tensor:
    """Return the (n, n) scatter of each run of numbers: from that of the row to that of the column.

    Scatter is the sum of squared distances to the mean of the run.
    """
    sums, squares = (torch.cat([power.new_zeros(1), power.cumsum(0)]) for power in (ordered, ordered**2))
    places = torch.arange(len(ordered))
    counts = places - places[:, None] + 1
    scatter = squares[1:] - squares[:-1, None] - (sums[1:] - sums[:-1, None]) ** 2 / counts.clamp(min=1)
    return scatter.clamp(min=0).where(counts > 0, torch.inf)
