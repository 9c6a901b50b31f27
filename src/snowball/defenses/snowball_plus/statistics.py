"""Small statistics of a few dozen numbers."""

import torch
from torch import Tensor

SMALLEST_VARIANCE = 1e-18
"""The least variance to divide by; anything lower is only rounding."""

ROUNDING = 1e-12
"""Scatter within groups below this share of the whole scatter is only rounding."""

MAD_TO_DEVIATION = 1.4826
"""Standard deviations of a normal distribution in a median absolute deviation."""


def cut_in_two(values: Tensor) -> tuple[Tensor, float]:
    """Cut (n,) values where the scatter within both groups is least; return the upper group and the separation.

    The separation is the difference of the group means over the pooled standard deviation. A normal distribution cut
    in the middle gives 2.65, a uniform one 3.46. If all values are equal, the upper group is empty.
    """
    upper, separations = cut_columns(values[:, None])
    return upper[:, 0], float(separations[0])


def cut_columns(values: Tensor) -> tuple[Tensor, Tensor]:
    """Cut each column of (n, k) values in two; return the (n, k) upper groups and the (k,) separations."""
    ordered, count = values.sort(0).values, len(values)
    if count < 2:
        return torch.zeros_like(values, dtype=torch.bool), torch.zeros(values.shape[1], dtype=torch.float64)
    below = torch.arange(1, count, dtype=torch.float64)[:, None]  # (n - 1, 1) number of values below each cut
    centred = ordered - ordered.mean(0)
    sums, squares = centred.cumsum(0)[:-1], centred.square().sum(0)
    between = sums.square() * count / (below * (count - below))  # (n - 1, k) scatter between the groups
    best = torch.where(ordered[1:] > ordered[:-1], between, -torch.inf).argmax(0, keepdim=True)  # (1, k)
    scatter, sum_below, lower = (each.gather(0, best)[0] for each in (between, sums, ordered))
    size = best[0] + 1.0
    gap = -sum_below * count / (size * (count - size))
    within = (squares - scatter).where(squares - scatter > ROUNDING * squares, 0)
    pooled = (within / count).clamp(min=SMALLEST_VARIANCE).sqrt()
    differ = ordered[-1] > ordered[0]
    return values > lower, torch.where(differ, gap / pooled, 0)


def separate_groups(values: Tensor, groups: Tensor) -> Tensor:
    """Return how much higher the (n, k) values of a group per column are than the others', in deviations within both.

    It is 0 for an empty group or one that holds everybody.
    """
    inside, count = groups.double(), len(values)
    sizes = inside.sum(0)
    means = (values * inside).sum(0) / sizes.clamp(min=1)
    others = (values * (1 - inside)).sum(0) / (count - sizes).clamp(min=1)
    scatter = (values - torch.where(groups, means, others)).square().sum(0)
    gaps = (means - others) / (scatter / count).clamp(min=SMALLEST_VARIANCE).sqrt()
    return gaps.where((sizes > 0) & (sizes < count), 0)


def rank_group(values: Tensor, group: Tensor) -> float:
    """Measure how much higher a group's (n,) values rank than the others': the standardised Mann-Whitney statistic."""
    return float(rank_groups(values, group[None])[0])


def rank_groups(values: Tensor, groups: Tensor) -> Tensor:
    """Return the (k,) ranks of (k, n) groups; 0 for an empty group or one that holds everybody."""
    inside = groups.double()
    return standardise_ranks(inside @ rank_values(values), inside.sum(1), len(values))


def rank_values(values: Tensor) -> Tensor:
    """Return the (n,) ranks from 1; values that tie have their mean rank."""
    _, indices, ties = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (ties.cumsum(0) - (ties - 1) / 2).double()
    return ranks[indices]


def standardise_ranks(sums: Tensor, sizes: Tensor, count: int) -> Tensor:
    """Return the (k,) standardised Mann-Whitney statistics of groups with these sums of ranks; 0 without a pair."""
    pairs = sizes * (count - sizes)
    wins = sums - sizes * (sizes + 1) / 2
    deviation = ((count + 1) / (12 * pairs.clamp(min=1))).sqrt()
    return torch.where(pairs > 0, (wins / pairs.clamp(min=1) - 0.5) / deviation, 0)


def standardise(values: Tensor) -> Tensor:
    """Return (n,) values about their mean, in standard deviations."""
    return (values - values.mean()) / values.var(correction=0).clamp(min=SMALLEST_VARIANCE).sqrt()


def standardise_robustly(values: Tensor) -> Tensor:
    """Return (n,) values about their median, in standard deviations estimated from the median absolute deviation."""
    about = values - values.quantile(0.5)
    return about / (MAD_TO_DEVIATION * about.abs().quantile(0.5)).clamp(min=SMALLEST_VARIANCE**0.5)


def compare_groups(likeness: Tensor, group: Tensor) -> Tensor:
    """Return how much more similar each of the (n,) rows is to the rows of a group than to the others.

    A row is not compared with itself, so one that has nothing in common with the group scores below zero as often as
    above.
    """
    inside, alike = group.double(), likeness.clone().fill_diagonal_(0)
    outside = 1 - inside
    own = alike @ inside / (inside.sum() - inside).clamp(min=1)
    return own - alike @ outside / (outside.sum() - outside).clamp(min=1)
