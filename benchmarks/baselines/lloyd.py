"""Lloyd's K-means in a Gram matrix, done plainly: every step multiplies all members by the whole matrix.

The package's K-means is timed and checked against it. Nothing here uses the package's own.
"""

import torch
from torch import Tensor

MOST_STEPS = 300
CHUNK_ELEMENTS = 1 << 20


def run_plain_lloyd(gram: Tensor, starts: Tensor) -> Tensor:
    """Return the (s, n) clusters of the rows behind an (n, n) Gram matrix, from (s, k) rows to start from."""
    size = max(1, CHUNK_ELEMENTS // (starts.shape[1] * len(gram)))
    return torch.cat([run_chunk(gram, chunk) for chunk in torch.split(starts, size)])


def run_chunk(gram: Tensor, starts: Tensor) -> Tensor:
    """Run some of the starts together, until no row changes its cluster."""
    result = torch.empty(len(starts), len(gram), dtype=torch.int64)
    active = torch.arange(len(starts))
    labels = torch.full_like(result, -1)
    members = torch.nn.functional.one_hot(starts, len(gram)).to(gram.dtype)  # (s, k, n)
    for _ in range(MOST_STEPS):
        distances = measure_distances(gram, members)
        previous, labels = labels, distances.min(1).indices
        changed = (labels != previous).any(1)
        result[active] = labels
        if not changed.any():
            break
        active, labels, distances = active[changed], labels[changed], distances[changed]
        members = mark(labels, starts.shape[1])
        fill_empty(members, labels, distances, gram)
    return result


def mark(labels: Tensor, clusters: int) -> Tensor:
    """Return (s, k, n) ones where a row belongs to a cluster, and zeros elsewhere."""
    members = torch.zeros(len(labels), clusters, labels.shape[1], dtype=torch.float64)
    return members.scatter_(1, labels[:, None], 1.0)


def measure_distances(gram: Tensor, members: Tensor) -> Tensor:
    """Return the (s, k, n) squared distances of rows to centroids, minus each row's own square."""
    products = members @ gram
    sizes = members.sum(2, keepdim=True).clamp_(min=1)
    squares = (members * products).sum(2, keepdim=True) / sizes**2
    return torch.sub(squares, products.div_(sizes), alpha=2)


def fill_empty(members: Tensor, labels: Tensor, distances: Tensor, gram: Tensor) -> None:
    """Give each empty cluster the row farthest from its own centroid, the farthest row to the first empty cluster."""
    empty = members.sum(2) == 0
    own = distances.gather(1, labels[:, None])[:, 0] + gram.diagonal()
    farthest = own.sort(dim=1, descending=True, stable=True).indices
    apart = (own > 1e-12 * gram.diagonal()).any(1)
    start, cluster = (empty & apart[:, None]).nonzero(as_tuple=True)
    row = farthest[start, (empty.cumsum(1) - 1)[start, cluster]]
    members[start, labels[start, row], row] = 0
    members[start, cluster, row] = 1


def score_plainly(gram: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Return the (s,) Calinski-Harabasz scores; rows on their centroids are not provided for."""
    to_own = measure_distances(gram, mark(labels, clusters)).gather(1, labels[:, None])[:, 0]
    within = (to_own + gram.diagonal()).clamp_(min=0).sum(1)
    total = gram.trace() - gram.mean() * len(gram)
    return (total - within) / within * (len(gram) - clusters) / (clusters - 1)
