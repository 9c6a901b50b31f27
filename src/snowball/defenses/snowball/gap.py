"""Finds the number of clusters of a layer by the Gap statistic.

Tibshirani, Walther, Hastie, "Estimating the number of clusters in a data set via the gap statistic", JRSS B 2001: the
gap is how far the logarithm of the scatter within clusters lies below that of structureless references. Their rule
takes the smallest number whose gap is not clearly below that of the next. References are drawn uniformly over the range
of each column (their choice a). Along principal axes (their choice b), real updates look structureless, and the result
is the lowest number allowed.

Deviation: most columns of wide references of many rows are not drawn one by one, but their inner products are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from snowball.defenses.snowball.kmeans import bound_rounding, measure_scatter, run_lloyd
from snowball.defenses.snowball.references import draw_reference, measure_ranges
from snowball.updates import Updates

GapRule = Literal["first", "largest"]
"""The number to take: the first whose gap is within one standard error of the next one's, or that of the largest."""

REFERENCES = 10
FEWEST_STARTS, MOST_STARTS = 10, 50
"""Starts of K-means, of which the best counts; with fewer, the number found depends more on chance."""


def find_clusters(updates: Updates, layer: str, least: int, most: int, rng: torch.Generator, rule: GapRule) -> int:
    """Find the number of clusters of a layer's rows, in [least, most]."""
    if most <= least or measure_scatter(updates.products(layer)) <= 0:
        return least
    counts = range(least, min(most + 1, len(updates) - 1) + 1)
    gaps = measure_gaps(updates, layer, counts, rng)
    if rule == "largest":
        return least + int(torch.stack([gap for gap, _ in gaps])[: most - least + 1].argmax())
    for count, ((gap, _), (following, error)) in zip(counts, pairwise(gaps), strict=False):
        if gap >= following - error:
            return count
    return most


def measure_gaps(updates: Updates, layer: str, counts: range, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the gap for each number of clusters, and its standard error for this number of references."""
    observed = Sample.draw(updates.products(layer), rng)
    ranges = measure_ranges(updates, layer, rng)
    references = [Sample.draw(draw_reference(len(updates), ranges, rng), rng) for _ in range(REFERENCES)]
    for clusters in counts:
        logs = torch.stack([reference.find_log_scatter(clusters) for reference in references])
        gap = logs.mean() - observed.find_log_scatter(clusters)
        yield gap, logs.std(correction=0) * (1 + 1 / REFERENCES) ** 0.5


@dataclass(frozen=True)
class Sample:
    """Rows that are clustered into several numbers of clusters, from the same starts.

    Attributes:
        gram: (n, n) inner products of the rows about any point.
        order: (s, n) the rows in random order; those in front are the first centroids of a start.
    """

    gram: Tensor
    order: Tensor

    @classmethod
    def draw(cls, gram: Tensor, rng: torch.Generator) -> "Sample":
        """Draw the starts."""
        starts = min(MOST_STARTS, max(FEWEST_STARTS, 10_000 // len(gram)))
        return cls(gram, torch.rand(starts, len(gram), generator=rng).argsort(1))

    def find_log_scatter(self, clusters: int) -> Tensor:
        """Return the log of the least scatter within clusters over all starts."""
        least = run_lloyd(self.gram, self.order[:, :clusters]).within.min()
        return least.clamp(min=bound_rounding(self.gram)).log()
