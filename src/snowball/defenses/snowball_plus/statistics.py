"""Small statistics of a few dozen numbers."""

import torch
from torch import Tensor

SMALLEST_VARIANCE = 1e-18
"""What variances are raised to before something is divided by them: below is rounding."""

MAD_TO_DEVIATION = 1.4826
"""Standard deviations of a normal distribution in a median absolute deviation."""


def cut_in_two(values: Tensor) -> tuple[Tensor, float]:
    """Cut (n,) values where the scatter within both groups is least: the upper group, and how far apart they are.

    The separation is the difference of the group means over the pooled standard deviation. One normal distribution cut
    in its middle gives 2.65, a uniform one 3.46. Values that are all alike have no upper group.
    """
    upper, separations = cut_columns(values[:, None])
    return upper[:, 0], float(separations[0])


def cut_columns(values: Tensor) -> tuple[Tensor, Tensor]:
    """Cut each column of (n, k) values in two: the upper groups (n, k), and how far apart the groups are (k,)."""
    ordered, count = values.sort(0).values, len(values)
    if count < 2:
        return torch.zeros_like(values, dtype=torch.bool), torch.zeros(values.shape[1], dtype=torch.float64)
    below = torch.arange(1, count, dtype=torch.float64)[:, None]  # (n - 1, 1) how many lie below each cut
    centred = ordered - ordered.mean(0)
    sums, squares = centred.cumsum(0)[:-1], centred.square().sum(0)
    between = sums.square() * count / (below * (count - below))  # (n - 1, k) scatter between the groups
    best = torch.where(ordered[1:] > ordered[:-1], between, -torch.inf).argmax(0, keepdim=True)  # (1, k)
    scatter, sum_below, lower = (each.gather(0, best)[0] for each in (between, sums, ordered))
    size = best[0] + 1.0
    gap = -sum_below * count / (size * (count - size))
    pooled = ((squares - scatter) / count).clamp(min=SMALLEST_VARIANCE).sqrt()
    differ = ordered[-1] > ordered[0]
    return values > lower, torch.where(differ, gap / pooled, 0)


def rank_group(values: Tensor, group: Tensor) -> float:
    """Measure how much higher a group's (n,) values rank than the others': the standardised Mann-Whitney statistic."""
    return float(rank_groups(values, group[None])[0])


def rank_groups(values: Tensor, groups: Tensor) -> Tensor:
    """(k,) the ranks of (k, n) groups; 0 for one that holds nobody or everybody."""
    inside = groups.double()
    return standardise_ranks(inside @ rank_values(values), inside.sum(1), len(values))


def rank_values(values: Tensor) -> Tensor:
    """(n,) ranks from 1, the mean rank where values tie."""
    _, indices, ties = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (ties.cumsum(0) - (ties - 1) / 2).double()
    return ranks[indices]


def standardise_ranks(sums: Tensor, sizes: Tensor, count: int) -> Tensor:
    """(k,) the standardised Mann-Whitney statistics of groups with these sums of ranks; 0 without a pair."""
    pairs = sizes * (count - sizes)
    wins = sums - sizes * (sizes + 1) / 2
    deviation = ((count + 1) / (12 * pairs.clamp(min=1))).sqrt()
    return torch.where(pairs > 0, (wins / pairs.clamp(min=1) - 0.5) / deviation, 0)


def standardise(values: Tensor) -> Tensor:
    """(n,) values about their mean, in standard deviations."""
    return (values - values.mean()) / values.var(correction=0).clamp(min=SMALLEST_VARIANCE).sqrt()


def standardise_robustly(values: Tensor) -> Tensor:
    """(n,) values about their median, in standard deviations as the median absolute deviation has them."""
    about = values - values.quantile(0.5)
    return about / (MAD_TO_DEVIATION * about.abs().quantile(0.5)).clamp(min=SMALLEST_VARIANCE**0.5)


def compare_groups(likeness: Tensor, group: Tensor) -> Tensor:
    """(n,) how much more each row is like the rows of a group than like the others, itself left out of either.

    Without itself in it, a row that has nothing in common with a group is as likely to score below as above zero.
    """
    inside, alike = group.double(), likeness.clone().fill_diagonal_(0)
    outside = 1 - inside
    own = alike @ inside / (inside.sum() - inside).clamp(min=1)
    return own - alike @ outside / (outside.sum() - outside).clamp(min=1)
