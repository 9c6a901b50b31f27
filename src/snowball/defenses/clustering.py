"""Clusters rows with HDBSCAN, from the distances between them.

Campello, Moulavi, Sander, "Density-Based Clustering Based on Hierarchical Density Estimates", PAKDD 2013.
"""

import torch
from torch import Tensor

from snowball.defenses.ops import compute_cosines
from snowball.updates import Updates

NOISE = -1
"""The label of a row that does not belong to a cluster."""

DECIMALS = 14
"""Decimals of a cosine distance that are not rounding errors."""


def cluster_rows(distances: Tensor, least: int, neighbours: int, single: bool = False) -> Tensor:
    """Return the (n,) cluster of each row, counted from 0, or `NOISE`.

    Args:
        distances: (n, n) distances between the rows.
        least: rows that a cluster needs at least.
        neighbours: rows that a dense neighbourhood holds, including the row itself.
        single: whether the result may be one cluster; if not, even a homogeneous crowd is split.
    """
    if len(distances) == 1:
        return torch.tensor([NOISE])
    from sklearn.cluster import HDBSCAN

    matrix = torch.maximum(distances, distances.T)  # scikit-learn refuses a matrix that rounding made asymmetric
    clusterer = HDBSCAN(
        min_cluster_size=least, min_samples=neighbours, metric="precomputed", allow_single_cluster=single, copy=True
    )
    return torch.from_numpy(clusterer.fit_predict(matrix.numpy()).astype("int64"))


def select_largest_cluster(labels: Tensor) -> Tensor:
    """Return a mask of the rows in the largest cluster (the first of equal size), or of all rows without a cluster."""
    sizes = labels[labels != NOISE].bincount().tolist()
    return labels == sizes.index(max(sizes)) if sizes else torch.ones_like(labels, dtype=torch.bool)


def compute_cosine_distances(updates: Updates, point: Tensor) -> Tensor:
    """Return 1 minus the (n, n) cosines of the rows about a (d,) point; a row at the point is 1 from all others."""
    return convert_to_cosine_distances(updates.products_about(point))


def convert_to_cosine_distances(products: Tensor) -> Tensor:
    """Return 1 minus the (n, n) cosines behind inner products about zero; a row of zeros is 1 from all others."""
    distances = 1 - compute_cosines(products)
    return distances.round(decimals=DECIMALS).fill_diagonal_(0)
