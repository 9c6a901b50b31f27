"""Lloyd's K-means for many starts at once, from inner products alone.

A centroid is an average of rows, so distances to it, the Lloyd step and the quality of a clustering all follow from
the rows' inner products; the cost does not depend on the number of columns.
"""

import torch
from torch import Tensor

MOST_STEPS = 300
CHUNK_ELEMENTS = 1 << 20
"""Elements of the (starts, clusters, rows) arrays that are processed at a time: 8 MiB each."""


def run_lloyd(gram: Tensor, starts: Tensor) -> Tensor:
    """Cluster the rows behind an (n, n) Gram matrix once for each start.

    Args:
        gram: (n, n) inner products of the rows about any point.
        starts: (s, k) row indices, the first centroids of each start.

    Returns:
        The (s, n) cluster of each row; cluster 0 grew from a start's first row.
    """
    size = max(1, CHUNK_ELEMENTS // (starts.shape[1] * len(gram)))
    return torch.cat([_run_starts(gram, chunk) for chunk in torch.split(starts, size)])


def _run_starts(gram: Tensor, starts: Tensor) -> Tensor:
    clusters = starts.shape[1]
    result = torch.empty(len(starts), len(gram), dtype=torch.int64)
    active = torch.arange(len(starts))
    labels = torch.full_like(result, -1)
    members = torch.nn.functional.one_hot(starts, len(gram)).to(gram.dtype)  # (s, k, n)
    for _ in range(MOST_STEPS):
        distances = measure_to_centroids(gram, members)  # (s, k, n), minus each row's own square
        previous, labels = labels, distances.min(1).indices  # several times as fast as argmin
        changed = (labels != previous).any(1)
        result[active] = labels
        if not changed.any():
            break
        active, labels, distances = active[changed], labels[changed], distances[changed]
        members = mark_members(labels, clusters, gram.dtype)
        _fill_empty(members, labels, distances, gram)
    return result


def mark_members(labels: Tensor, clusters: int, dtype: torch.dtype) -> Tensor:
    """Return (s, k, n) ones where a row belongs to a cluster, and zeros elsewhere."""
    members = torch.zeros(len(labels), clusters, labels.shape[1], dtype=dtype)
    return members.scatter_(1, labels[:, None], 1.0)


def measure_to_centroids(gram: Tensor, members: Tensor) -> Tensor:
    """Return the (s, k, n) squared distances of rows to the clusters' centroids, minus each row's own square."""
    products = members @ gram
    sizes = members.sum(2, keepdim=True).clamp_(min=1)
    squares = (members * products).sum(2, keepdim=True) / sizes**2
    return torch.sub(squares, products.div_(sizes), alpha=2)


def _fill_empty(members: Tensor, labels: Tensor, distances: Tensor, gram: Tensor) -> None:
    """Give each empty cluster the row farthest from its own centroid, the farthest row to the first empty cluster."""
    empty = members.sum(2) == 0  # (s, k)
    if not empty.any():
        return
    own = distances.gather(1, labels[:, None])[:, 0] + gram.diagonal()  # (s, n)
    farthest = own.sort(dim=1, descending=True, stable=True).indices
    apart = (own > 1e-12 * gram.diagonal()).any(1)  # rows that coincide cannot fill a cluster
    start, cluster = (empty & apart[:, None]).nonzero(as_tuple=True)
    row = farthest[start, (empty.cumsum(1) - 1)[start, cluster]]
    members[start, labels[start, row], row] = 0
    members[start, cluster, row] = 1


def measure_scatter_within(gram: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Return the (s,) summed squared distances of rows to their cluster's centroid.

    The sum goes row by row: a difference of two sums would be shorter, but one far row would round off all others.
    """
    to_own = measure_to_centroids(gram, mark_members(labels, clusters, gram.dtype)).gather(1, labels[:, None])[
        :, 0
    ]  # (s, n)
    return (to_own + gram.diagonal()).clamp_(min=0).sum(1)


def measure_scatter(gram: Tensor) -> Tensor:
    """Return the summed squared distances of all rows to their mean; rounding may leave it below zero."""
    return gram.trace() - gram.mean() * len(gram)


def compute_calinski_harabasz(gram: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Return the (s,) clarity of each clustering: variance between clusters over that within, per degree of freedom.

    It equals scikit-learn's score, except that rows that coincide with their centroids score highest instead of 1.
    """
    total = measure_scatter(gram)
    within = measure_scatter_within(gram, labels, clusters)
    found = torch.zeros(len(labels), clusters).scatter_(1, labels, 1.0).sum(1)
    rows = labels.shape[1]
    ratio = (total - within).clamp_(min=0) / within.clamp(min=bound_rounding(gram))
    return (ratio * (rows - found) / (found - 1).clamp(min=1)).clamp_(max=1e300)


def bound_rounding(gram: Tensor) -> Tensor:
    """Return the scatter that rounding alone explains, given the median length of rows; never zero."""
    limits = torch.finfo(gram.dtype)
    return limits.eps * len(gram) * gram.diagonal().median() + limits.tiny
