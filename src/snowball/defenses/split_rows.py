"""Splits rows into clusters with K-means, from their inner products; the best of several starts counts."""

import torch
from torch import Tensor

from snowball.defenses.snowball.kmeans import run_lloyd

STARTS = 50


def split_rows(products: Tensor, clusters: int, rng: torch.Generator) -> Tensor:
    """Return the (n,) cluster of each row, from the rows' (n, n) inner products about any point.

    The first centroids of a start are rows drawn without replacement.
    """
    starts = torch.rand(STARTS, len(products), generator=rng).argsort(1)[:, :clusters]
    found = run_lloyd(products, starts)
    return found.labels[found.within.argmin()]
