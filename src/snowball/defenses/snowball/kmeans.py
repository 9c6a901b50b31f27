"""Lloyd's K-means for many starts at once, from inner products alone.

A centroid is an average of rows, so distances to it, the Lloyd step and the quality of a clustering all follow from
the rows' inner products; the cost does not depend on the number of columns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

MOST_STEPS = 300
CHUNK_ELEMENTS = 1 << 20
"""Elements of the (starts, clusters, rows) arrays that are processed at a time: 8 MiB each."""

MANY_ROWS, MANY_CLUSTERS = 128, 5
"""From these numbers on, adding up the rows of each cluster is faster than a product of matrices."""

TOLERANCE = 1e-9
"""Differences of squared distances, relative to squared lengths, that rounding may explain."""

FAR = 100
"""Rows are far if their squared length exceeds the median one this many times."""


@dataclass(frozen=True)
class Clusterings:
    """The clusterings that K-means found, one per start.

    Attributes:
        labels: (s, n) the cluster of each row; cluster 0 grew from a start's first row.
        within: (s,) the summed squared distances of rows to their cluster's centroid.
    """

    labels: Tensor
    within: Tensor


@dataclass(frozen=True)
class Step:
    """The result of a Lloyd step, or some of its starts.

    Attributes:
        labels: (s, n) the nearest centroid of each row.
        members: (s, n) the cluster of each row: the same, except that each empty cluster got a row.
        least: (s, n) the squared distance of each row to its nearest centroid, minus the row's own square.
    """

    labels: Tensor
    members: Tensor
    least: Tensor

    def select(self, starts: Tensor) -> "Step":
        """Return the step of some starts."""
        return Step(self.labels[starts], self.members[starts], self.least[starts])


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
    step = _assign(gram, torch.sub(gram.diagonal()[starts][:, :, None], gram[starts], alpha=2))
    sums = MovingSums(gram, step.members, clusters) if adds_rows(gram, clusters) else None
    for _ in range(MOST_STEPS - 1):
        before, step = step, sums.step() if sums else step_plainly(gram, step.members, clusters)
        labels[active] = step.labels
        changed = (step.labels != before.labels).any(1)
        if changed.all():
            continue
        if not sums or sums.steady:
            kept = ~changed & (step.labels == before.members).all(1)  # measured to the centroids of these very clusters
            within[active[kept]] = _sum_scatter(gram, step.least[kept])
        active, step = active[changed], step.select(changed)
        if not len(active):
            break
        if sums:
            sums.select(changed)
    rest = within.isnan()
    within[rest] = measure_scatter_within(gram, labels[rest], clusters)
    return Clusterings(labels, within)


def step_plainly(gram: Tensor, members: Tensor, clusters: int) -> Step:
    """Take one Lloyd step from the (s, n) cluster that each row belongs to."""
    return _assign(gram, measure_to_centroids(gram, members, clusters))


def _assign(gram: Tensor, distances: Tensor) -> Step:
    least, labels = distances.min(1)  # several times as fast as argmin
    return Step(labels, _fill_empty(labels, distances, gram), least)


class MovingSums:
    """The sums of each cluster's rows, as inner products with all rows, updated by the rows that move.

    Rounding errors grow with each update. They could decide between two centroids at almost the same distance, so a
    start with such a row takes a plain step, as does one with an empty cluster, and its sums are computed from scratch.
    So are the sums of a start in which a far row moves. All labels are those of plain steps.

    Attributes:
        steady: whether no row is far, so that the distances of the last step are as exact as plain ones.
    """

    def __init__(self, gram: Tensor, members: Tensor, clusters: int) -> None:
        self._gram, self._members, self._sizes = gram, members, count_members(members, clusters)
        self._products = sum_members(gram, members, clusters)  # (s, k, n)
        squares = gram.diagonal()
        self._far = squares > FAR * squares.median()
        self.steady = not self._far.any()
        self._tolerance = TOLERANCE * (squares + FAR * squares.median())

    def select(self, starts: Tensor) -> None:
        """Forget the other starts."""
        self._products, self._members, self._sizes = (
            array[starts] for array in (self._products, self._members, self._sizes)
        )

    def step(self) -> Step:
        """Take one Lloyd step."""
        labels, least, doubtful = self._find_nearest()
        sizes = count_members(labels, self._sizes.shape[1])
        plainly = doubtful | (sizes == 0).any(1)
        step = Step(labels, labels, least)
        if plainly.any():
            exact = step_plainly(self._gram, self._members[plainly], self._sizes.shape[1])
            step = Step(labels, labels.clone(), least)
            step.labels[plainly], step.members[plainly], step.least[plainly] = exact.labels, exact.members, exact.least
            sizes = count_members(step.members, sizes.shape[1])
        self._move(step.members, plainly)
        self._members, self._sizes = step.members, sizes
        return step

    def _find_nearest(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return each row's nearest centroid, its distance, and the (s,) starts where rounding may decide about one."""
        own = self._members[:, None]
        sizes = self._sizes.clamp(min=1)
        within = torch.zeros_like(sizes).scatter_add_(1, self._members, self._products.gather(1, own)[:, 0])
        distances = torch.addcmul((within / sizes**2)[:, :, None], self._products, 1 / sizes[:, :, None], value=-2)
        least = distances.gather(1, own)[:, 0]
        tolerance = torch.add(self._tolerance, least.abs(), alpha=TOLERANCE)
        to_others = distances.scatter_(1, own, torch.inf).amin(1)
        start, row = (to_others <= least + tolerance).nonzero(as_tuple=True)
        pairs = distances[start, :, row].scatter_(1, self._members[start, row, None], least[start, row, None])
        first, nearest = pairs.min(1)
        second = pairs.scatter_(1, nearest[:, None], torch.inf).amin(1)
        labels = self._members.index_put((start, row), nearest)
        least[start, row] = first
        doubtful = torch.zeros(len(labels), dtype=torch.bool)
        doubtful[start[second - first <= tolerance[start, row]]] = True
        return labels, least, doubtful

    def _move(self, members: Tensor, scratch: Tensor) -> None:
        """Update the sums for other members; `scratch` marks the starts to add up again."""
        moved = members != self._members
        scratch = scratch | (moved & self._far).any(1)
        if scratch.any():
            self._products[scratch] = sum_members(self._gram, members[scratch], self._sizes.shape[1])
            moved &= ~scratch[:, None]
        start, row = moved.nonzero(as_tuple=True)
        first = start * self._sizes.shape[1]
        self._add(row, first + self._members[start, row], -1)
        self._add(row, first + members[start, row], 1)

    def _add(self, rows: Tensor, clusters: Tensor, sign: int) -> None:
        """Add rows to clusters, which are numbered over all starts, or take them out."""
        order = clusters.argsort(stable=True)
        found, counts = clusters[order].unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
        sums = embedding_bag(rows[order], self._gram, counts.cumsum(0) - counts, mode="sum")
        self._products.view(-1, len(self._gram)).index_add_(0, found, sums, alpha=sign)


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
