"""One step of Lloyd's K-means for many starts at once, from inner products alone."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

MANY_ROWS, MANY_CLUSTERS = 128, 5
"""From these numbers on, adding up the rows of each cluster is faster than a product of matrices."""


@dataclass(frozen=True)
class Step:
    """The result of a Lloyd step.

    Attributes:
        labels: (s, n) the nearest centroid of each row.
        members: (s, n) the cluster of each row: the same, except that each empty cluster got a row.
        least: (s, n) the squared distance of each row to its nearest centroid, minus the row's own square.
    """

    labels: Tensor
    members: Tensor
    least: Tensor


def take_first_step(gram: Tensor, starts: Tensor) -> Step:
    """Assign rows to the (s, k) rows that each start begins with."""
    return _assign(gram, torch.sub(gram.diagonal()[starts][:, :, None], gram[starts], alpha=2))


def step_plainly(gram: Tensor, members: Tensor, clusters: int) -> Step:
    """Take one Lloyd step from the (s, n) cluster that each row belongs to."""
    return _assign(gram, measure_to_centroids(gram, members, clusters))


class PlainSteps:
    """Takes one step after the other, each from scratch.

    Attributes:
        labels: (s, n) the nearest centroid of each row, for each start that is not done.
    """

    def __init__(self, gram: Tensor, first: Step, clusters: int) -> None:
        self._gram, self._clusters = gram, clusters
        self.labels, self._members = first.labels, first.members

    def take(self) -> tuple[Tensor, Tensor]:
        """Take a step.

        Returns:
            A (s,) mask of starts whose labels did not change, and each row's (s, n) squared distance to its centroid,
            minus its own square. This is NaN where it was not measured to the centroids of these very clusters.
        """
        step = step_plainly(self._gram, self._members, self._clusters)
        done, same = (step.labels == self.labels).all(1), (step.labels == self._members).all(1)
        self.labels, self._members = step.labels, step.members
        return done, step.least.masked_fill_(~same[:, None], torch.nan)

    def drop(self, done: Tensor) -> Tensor:
        """Forget the starts that are done, and return the (s,) former numbers of the others."""
        kept = (~done).nonzero()[:, 0]
        self.labels, self._members = self.labels[kept], self._members[kept]
        return kept


def _assign(gram: Tensor, distances: Tensor) -> Step:
    least, labels = distances.min(1)  # several times as fast as argmin
    return Step(labels, _fill_empty(labels, distances, gram), least)


def adds_rows(gram: Tensor, clusters: int) -> bool:
    """Return whether adding up the rows of each cluster is faster than a product with zeros and ones."""
    return len(gram) >= MANY_ROWS and clusters >= MANY_CLUSTERS


def sum_members(gram: Tensor, members: Tensor, clusters: int) -> Tensor:
    """Return the (s, k, n) inner products of the sum of each cluster's rows with all rows."""
    if not adds_rows(gram, clusters):
        return mark_members(members, clusters, gram.dtype) @ gram
    cluster = (members + clusters * torch.arange(len(members))[:, None]).flatten()
    order = cluster.argsort(stable=True)
    firsts = torch.searchsorted(cluster[order], torch.arange(clusters * len(members)))
    return embedding_bag(order % len(gram), gram, firsts, mode="sum").view(len(members), clusters, len(gram))


def mark_members(members: Tensor, clusters: int, dtype: torch.dtype) -> Tensor:
    """Return (s, k, n) ones where a row belongs to a cluster, and zeros elsewhere."""
    marked = torch.zeros(len(members), clusters, members.shape[1], dtype=dtype)
    return marked.scatter_(1, members[:, None], 1.0)


def count_members(members: Tensor, clusters: int) -> Tensor:
    """Return the (s, k) number of rows in each cluster, as float64."""
    ones = torch.ones((), dtype=torch.float64).expand(members.shape)
    return torch.zeros(len(members), clusters, dtype=torch.float64).scatter_add_(1, members, ones)


def measure_to_centroids(gram: Tensor, members: Tensor, clusters: int) -> Tensor:
    """Return the (s, k, n) squared distances of rows to the clusters' centroids, minus each row's own square."""
    products = sum_members(gram, members, clusters)
    sizes = count_members(members, clusters).clamp_(min=1)[:, :, None]
    squares = (mark_members(members, clusters, gram.dtype) * products).sum(2, keepdim=True) / sizes**2
    return torch.sub(squares, products.div_(sizes), alpha=2)


def _fill_empty(labels: Tensor, distances: Tensor, gram: Tensor) -> Tensor:
    """Give each empty cluster the row farthest from its own centroid, the farthest row to the first empty cluster."""
    empty = count_members(labels, distances.shape[1]) == 0  # (s, k)
    if not empty.any():
        return labels
    own = distances.gather(1, labels[:, None])[:, 0] + gram.diagonal()  # (s, n)
    farthest = own.sort(dim=1, descending=True, stable=True).indices
    apart = (own > 1e-12 * gram.diagonal()).any(1)  # rows that coincide cannot fill a cluster
    start, cluster = (empty & apart[:, None]).nonzero(as_tuple=True)
    row = farthest[start, (empty.cumsum(1) - 1)[start, cluster]]
    return labels.index_put((start, row), cluster)
