"""Clusters of rows for the defenses that look for them: HDBSCAN on distances between rows.

Campello, Moulavi, Sander, "Density-Based Clustering Based on Hierarchical Density Estimates", PAKDD 2013.
"""

import torch
from torch import Tensor

from snowball.defenses.ops import compute_cosines
from snowball.updates import Updates

NOISE = -1
"""The label of a row that belongs to no cluster."""

DECIMALS = 14
"""Digits of a cosine distance that are more than rounding."""


def cluster_rows(distances: Tensor, least: int, neighbours: int, single: bool = False) -> Tensor:
    """(n,) the cluster of each row, counted from 0, or `NOISE`.

    Args:
        distances: (n, n) between the rows.
        least: rows in the smallest cluster.
        neighbours: rows that a dense neighbourhood holds, itself included.
        single: whether there may be one cluster alone; without, an even crowd is taken apart.
    """
    if len(distances) == 1:
        return torch.tensor([NOISE])
    from sklearn.cluster import HDBSCAN

    matrix = torch.maximum(distances, distances.T)  # scikit-learn refuses what rounding has made uneven
    clusterer = HDBSCAN(
        min_cluster_size=least, min_samples=neighbours, metric="precomputed", allow_single_cluster=single, copy=True
    )
    return torch.from_numpy(clusterer.fit_predict(matrix.numpy()).astype("int64"))


def select_largest_cluster(labels: Tensor) -> Tensor:
    """(n,) bool, the rows of the largest cluster, of equal ones the first; all rows where there is no cluster."""
    sizes = labels[labels != NOISE].bincount().tolist()
    return labels == sizes.index(max(sizes)) if sizes else torch.ones_like(labels, dtype=torch.bool)


def compute_cosine_distances(updates: Updates, point: Tensor) -> Tensor:
    """(n, n) one less the cosines of the rows about a point (d,); a row at the point is 1 from all others."""
    distances = 1 - compute_cosines(updates.products_about(point))
    return distances.round(decimals=DECIMALS).fill_diagonal_(0)
