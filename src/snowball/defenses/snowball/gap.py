"""Finds the number of clusters of a layer by the Gap statistic.

Tibshirani, Walther, Hastie, "Estimating the number of clusters in a data set via the gap statistic", JRSS B 2001: the
gap is how far the logarithm of the scatter within clusters lies below that of structureless references. Their rule
takes the smallest number whose gap is not clearly below that of the next. References are drawn uniformly over the range
of each column (their choice a). Along principal axes (their choice b), real updates look structureless, and the result
is the lowest number allowed.
"""

from typing import Literal

import torch
from torch import Tensor

from snowball.defenses.snowball.kmeans import bound_rounding, measure_scatter, measure_scatter_within, run_lloyd
from snowball.updates import Updates

GapRule = Literal["first", "largest"]
"""The number to take: the first whose gap is within one standard error of the next one's, or that of the largest."""

REFERENCES = 10
FEWEST_STARTS, MOST_STARTS = 10, 50
"""Starts of K-means, of which the best counts; with fewer, the number found depends more on chance."""

MOST_COLUMNS = 1 << 16
"""The most columns that references have; wider layers are sampled, since more columns change only the scale."""


def find_clusters(updates: Updates, layer: str, least: int, most: int, rng: torch.Generator, rule: GapRule) -> int:
    """Find the number of clusters of a layer's rows, in [least, most]."""
    if most <= least or measure_scatter(updates.products(layer)) <= 0:
        return least
    counts = range(least, min(most + 1, len(updates) - 1) + 1)
    gap, error = measure_gap(updates, layer, counts, rng)
    if rule == "largest":
        return least + int(gap[: most - least + 1].argmax())
    good = gap[:-1] >= gap[1:] - error[1:]
    return least + int(good.int().argmax()) if good.any() else most


def measure_gap(updates: Updates, layer: str, counts: range, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the gap for each number of clusters, and its standard error for this number of references."""
    observed = find_log_scatter(updates.products(layer), counts, rng)  # (counts,)
    ranges = _measure_ranges(updates, layer, rng)
    references = torch.stack(
        [find_log_scatter(_draw_reference(len(updates), ranges, rng), counts, rng) for _ in range(REFERENCES)]
    )
    return references.mean(0) - observed, references.std(0, correction=0) * (1 + 1 / REFERENCES) ** 0.5


def _measure_ranges(updates: Updates, layer: str, rng: torch.Generator) -> Tensor:
    columns = updates.layout.columns[layer]
    chosen = torch.randperm(columns.stop - columns.start, generator=rng)[:MOST_COLUMNS].sort().values
    values = updates.read_columns(columns.start + chosen)
    return (values.amax(0) - values.amin(0)).double()


def _draw_reference(rows: int, ranges: Tensor, rng: torch.Generator) -> Tensor:
    """Return the Gram matrix of rows drawn uniformly over the columns' ranges."""
    drawn = torch.rand(rows, len(ranges), generator=rng, dtype=ranges.dtype) * ranges
    drawn -= drawn.mean(0)
    return drawn @ drawn.T


def find_log_scatter(gram: Tensor, counts: range, rng: torch.Generator) -> Tensor:
    """Return the log of the least scatter within clusters over several starts, for each number of clusters."""
    starts = min(MOST_STARTS, max(FEWEST_STARTS, 10_000 // len(gram)))
    order = torch.rand(starts, len(gram), generator=rng).argsort(1)
    least = [measure_scatter_within(gram, run_lloyd(gram, order[:, :k]), k).min() for k in counts]
    return torch.stack(least).clamp(min=bound_rounding(gram)).log()
