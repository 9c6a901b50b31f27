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
    ordered, count = values.sort().values, len(values)
    if count < 2 or not ordered[-1] > ordered[0]:
        return torch.zeros(count, dtype=torch.bool), 0.0
    below = torch.arange(1, count, dtype=torch.float64)  # (n - 1,) how many lie below each cut
    centred = ordered - ordered.mean()
    sums, squares = centred.cumsum(0)[:-1], centred.square().sum()
    between = sums.square() * count / (below * (count - below))  # scatter between the groups
    best = int(torch.where(ordered[1:] > ordered[:-1], between, -torch.inf).argmax())
    gap = -sums[best] * count / (below[best] * (count - below[best]))
    pooled = ((squares - between[best]) / count).clamp(min=SMALLEST_VARIANCE).sqrt()
    return values > ordered[best], float(gap / pooled)


def rank_group(values: Tensor, group: Tensor) -> float:
    """How much higher a group's (n,) values rank than the others': the standardised Mann-Whitney statistic."""
    return float(rank_groups(values, group[None])[0])


def rank_groups(values: Tensor, groups: Tensor) -> Tensor:
    """(k,) the ranks of (k, n) groups; 0 for one that holds nobody or everybody."""
    inside = groups.double()
    higher = (values[:, None] > values).double() + (values[:, None] == values).double() / 2  # (n, n)
    wins = (inside @ higher * (1 - inside)).sum(1)
    pairs = inside.sum(1) * (1 - inside).sum(1)
    deviation = ((len(values) + 1) / (12 * pairs.clamp(min=1))).sqrt()
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
