"""How many clusters a layer has, by the Gap statistic.

Tibshirani, Walther, Hastie, "Estimating the number of clusters in a data set via the gap statistic", JRSS B 2001:
the number at which the scatter within clusters lies farthest below that of structureless references.
"""

import torch
from torch import Tensor

from snowball.defenses.snowball.kmeans import lloyd, scatter_within

REFERENCES = 10
STARTS = 10


def coordinates(gram: Tensor) -> Tensor:
    """(n, n - 1) principal coordinates of the rows behind a Gram matrix: the same distances, whatever the columns."""
    values, vectors = torch.linalg.eigh(gram)
    rows: Tensor = vectors * values.clamp(min=0).sqrt()
    return rows.flip(1)[:, :-1]


def gap_clusters(gram: Tensor, least: int, most: int, rng: torch.Generator) -> int:
    """The smallest number in [least, most] whose gap is not clearly beaten by the next one's."""
    if most <= least or gram.trace() <= 0:
        return least
    rows = coordinates(gram)
    counts = range(least, min(most + 1, len(gram) - 1) + 1)
    observed = log_scatter(gram, counts, rng)  # (counts,)
    references = torch.stack([log_scatter(_reference(rows, rng), counts, rng) for _ in range(REFERENCES)])
    gap = references.mean(0) - observed
    slack = references.std(0, correction=0) * (1 + 1 / REFERENCES) ** 0.5
    good = gap[:-1] >= gap[1:] - slack[1:]
    return counts[int(good.int().argmax())] if good.any() else most


def _reference(rows: Tensor, rng: torch.Generator) -> Tensor:
    """The Gram matrix of rows drawn evenly from the box that the rows fill along their principal axes."""
    low, high = rows.min(0).values, rows.max(0).values
    drawn = low + (high - low) * torch.rand(rows.shape, generator=rng, dtype=rows.dtype)
    drawn -= drawn.mean(0)
    return drawn @ drawn.T


def log_scatter(gram: Tensor, counts: range, rng: torch.Generator) -> Tensor:
    """The log of the least scatter within clusters, for each number of clusters."""
    floor = torch.finfo(gram.dtype).eps * gram.trace()
    order = torch.rand(STARTS, len(gram), generator=rng).argsort(1)
    least = [scatter_within(gram, lloyd(gram, order[:, :k]), k).min() for k in counts]
    return torch.stack(least).clamp(min=floor).log()
