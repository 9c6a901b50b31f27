"""Lloyd's K-means for many starts at once, from inner products alone.

A centroid is an average of rows, so distances to it, the Lloyd step and the quality of a clustering all follow from
the rows' inner products; the cost does not depend on the number of columns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.snowball.lloyd_step import (
    PlainSteps,
    adds_rows,
    count_members,
    measure_to_centroids,
    take_first_step,
)
from snowball.defenses.snowball.moving_sums import MovingSums

MOST_STEPS = 300
CHUNK_ELEMENTS = 1 << 20
"""Elements of the (starts, clusters, rows) arrays that are processed at a time: 8 MiB each."""


@dataclass(frozen=True)
class Clusterings:
    """The clusterings that K-means found, one per start.

    Attributes:
        labels: (s, n) the cluster of each row; cluster 0 grew from a start's first row.
        within: (s,) the summed squared distances of rows to their cluster's centroid.
    """

    labels: Tensor
    within: Tensor


def run_lloyd(gram: Tensor, starts: Tensor) -> Clusterings:
    """Cluster the rows behind an (n, n) Gram matrix once for each start.

    Args:
        gram: (n, n) inner products of the rows about any point.
        starts: (s, k) row indices, the first centroids of each start.
    """
    found = [_run_starts(gram, chunk) for chunk in split_starts(starts, gram, starts.shape[1])]
    return Clusterings(torch.cat([each.labels for each in found]), torch.cat([each.within for each in found]))


def split_starts(array: Tensor, gram: Tensor, clusters: int) -> tuple[Tensor, ...]:
    """Split an array of starts so that (starts, clusters, rows) arrays are small."""
    return torch.split(array, max(1, CHUNK_ELEMENTS // (clusters * len(gram))))


def _run_starts(gram: Tensor, starts: Tensor) -> Clusterings:
    clusters = starts.shape[1]
    labels = torch.empty(len(starts), len(gram), dtype=torch.int64)
    within = torch.full((len(starts),), torch.nan, dtype=gram.dtype)
    active = torch.arange(len(starts))
    first = take_first_step(gram, starts)
    steps = (MovingSums if adds_rows(gram, clusters) else PlainSteps)(gram, first, clusters)
    for _ in range(MOST_STEPS - 1):
        done, least = steps.take()
        if not done.any():
            continue
        labels[active[done]], within[active[done]] = steps.labels[done], _sum_scatter(gram, least[done])
        active = active[steps.drop(done)]
        if not len(active):
            break
    labels[active] = steps.labels
    rest = within.isnan()
    within[rest] = measure_scatter_within(gram, labels[rest], clusters)
    return Clusterings(labels, within)


def measure_scatter_within(gram: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Return the (s,) summed squared distances of rows to their cluster's centroid."""
    distances = measure_to_centroids(gram, labels, clusters)
    return _sum_scatter(gram, distances.gather(1, labels[:, None])[:, 0])


def _sum_scatter(gram: Tensor, to_own: Tensor) -> Tensor:
    """Return the (s,) sums of (s, n) squared distances to a centroid, given minus the rows' own squares.

    The sum goes row by row: a difference of two sums would be shorter, but one far row would round off all others.
    """
    return (to_own + gram.diagonal()).clamp_(min=0).sum(1)


def measure_scatter(gram: Tensor) -> Tensor:
    """Return the summed squared distances of all rows to their mean; rounding may leave it below zero."""
    return gram.trace() - gram.mean() * len(gram)


def compute_calinski_harabasz(gram: Tensor, found: Clusterings, clusters: int) -> Tensor:
    """Return the (s,) clarity of each clustering: variance between clusters over that within, per degree of freedom.

    It equals scikit-learn's score, except that rows that coincide with their centroids score highest instead of 1.
    """
    between = (measure_scatter(gram) - found.within).clamp_(min=0)
    filled = (count_members(found.labels, clusters) > 0).sum(1)
    ratio = between / found.within.clamp(min=bound_rounding(gram))
    return (ratio * (len(gram) - filled) / (filled - 1).clamp(min=1)).clamp_(max=1e300)


def bound_rounding(gram: Tensor) -> Tensor:
    """Return the scatter that rounding alone explains, given the median length of rows; never zero."""
    limits = torch.finfo(gram.dtype)
    return limits.eps * len(gram) * gram.diagonal().median() + limits.tiny
