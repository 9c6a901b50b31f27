"""MESAS: prune the models that stand out in any of six metrics, as long as statistical tests find some.

Krauss, Dmitrienko, "MESAS: Poisoning Defense for Federated Learning Resilient against Adaptive Attackers", CCS 2023.
Attackers who adapt to one metric show in another. Each metric is split at its median. If the distances of the two
halves from the median differ significantly in mean, variance or distribution, one half holds poisoned models: the
values are clustered in two, and the smaller cluster is pruned. So are models beyond three standard deviations. This is
repeated until no metric speaks against anybody.

Deviations: the authors published no code, and public copies differ: one compares each half with all values, which
include it, at a significance of 0.0001, another the halves with each other at 0.05. Where they cluster agglomeratively,
the best split of the numbers is found exactly. The first metric to speak against models prunes them before the others
are asked, so that at least half stay in each pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.defenses.clustering import DECIMALS
from snowball.defenses.ops import average_by_examples, elect_everyone
from snowball.defenses.score_clusters import select_upper_cluster
from snowball.errors import SettingError
from snowball.updates import Updates

MOST_DEVIATIONS = 3.0
"""Standard deviations from the mean beyond which a model is pruned without a test."""

SMALLEST_SPREAD = 1e-9
"""The spread of values, relative to the largest, up to which they are equal but for rounding."""


@dataclass(frozen=True)
class MESAS:
    """Average the models that stand out in none of six metrics.

    Attributes:
        significance: p-value below which two halves differ; each test errs as often where nobody attacks.
    """

    min_updates: ClassVar[int] = 11  # one outlier of ten cannot lie three standard deviations out
    significance: float = 0.01

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 <= self.significance <= 1:
            raise SettingError(f"significance must lie in 0..1, got {self.significance}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Prune until no metric speaks against a model."""
        metrics = measure_metrics(updates, require(context.base, "base", "mesas"))
        elected = elect_everyone(updates)
        while (rows := self._find_poisoned(metrics, elected.nonzero()[:, 0])).numel():
            elected[rows] = False
        facts = {f"metric.{name}": values for name, values in metrics.items()}
        return Verdict(average_by_examples(updates, elected), elected, facts)

    def _find_poisoned(self, metrics: Mapping[str, Tensor], kept: Tensor) -> Tensor:
        """Return the numbers of the rows that the first metric to speak against any of the kept ones prunes."""
        masks = (mark_poisoned(values[kept], self.significance) for values in metrics.values())
        return next((kept[mask] for mask in masks if mask.any()), kept[:0])


def measure_metrics(updates: Updates, base: Tensor) -> dict[str, Tensor]:
    """Return the six (n,) metrics of each model and its update, under the paper's names."""
    start = base.double()
    squares, along, own = updates.squared_norms, updates.dot(base), start @ start
    lengths = (squares + 2 * along + own).clamp(min=0).sqrt() * own.sqrt()  # of the model times that of the base
    cosines = torch.where(lengths > 0, (along + own) / lengths, 0).clamp(-1, 1)
    total, positive, smallest, largest = measure_entries(updates)
    width = updates.layout.width
    return {
        "COS": (1 - cosines).round(decimals=DECIMALS),
        "EUCL": squares.sqrt(),
        "COUNT": positive,
        "VAR": (squares / width - (total / width) ** 2).clamp(min=0),
        "MIN": smallest,
        "MAX": largest,
    }


def measure_entries(updates: Updates) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return each row's (n,) sum, number of positive entries, smallest size of one that is not zero, and largest."""
    total, positive, largest = (torch.zeros(len(updates), dtype=torch.float64) for _ in range(3))
    smallest = torch.full_like(total, inf)
    for _, block in updates.read_blocks(slice(0, updates.layout.width)):
        total += block.sum(1)
        positive += (block > 0).sum(1)
        sizes = block.abs()
        largest = largest.maximum(sizes.amax(1))
        smallest = smallest.minimum(sizes.where(sizes > 0, inf).amin(1))
    return total, positive, smallest.where(smallest < inf, 0), largest


def mark_poisoned(values: Tensor, significance: float) -> Tensor:
    """Return a mask of the values far out or, if there are none and the halves differ, of the smaller cluster."""
    scale = values.abs().max()
    if values.max() - values.min() <= SMALLEST_SPREAD * scale:
        return torch.zeros_like(values, dtype=torch.bool)
    values = values / scale  # first, so that no square overflows
    outliers = (values - values.mean()).abs() > MOST_DEVIATIONS * values.std(correction=0)
    if outliers.any() or not halves_differ(values, significance):
        return outliers
    upper = select_upper_cluster(values)
    return upper if 2 * upper.sum() <= len(upper) else ~upper


def halves_differ(values: Tensor, significance: float) -> bool:
    """Return whether the distances of upper and lower half from the median differ in any of three tests."""
    from scipy.stats import ks_2samp

    median = values.quantile(0.5)
    upper, lower = (values[values > median] - median), (median - values[values < median])
    if min(len(upper), len(lower)) < 2:
        return False
    scatters = [(half - half.quantile(0.5)).abs() for half in (upper, lower)]
    tests = compare_means(upper, lower), compare_means(*scatters), float(ks_2samp(upper, lower, method="asymp").pvalue)
    return min(tests) < significance


def compare_means(one: Tensor, other: Tensor) -> float:
    """Return the p-value of Student's test; of distances from the medians, it is that of Levene's test."""
    from scipy.special import stdtr

    freedom = len(one) + len(other) - 2
    scatter = (one.var(correction=0) * len(one) + other.var(correction=0) * len(other)) / freedom
    error = (scatter * (1 / len(one) + 1 / len(other))).sqrt()
    gap = (one.mean() - other.mean()).abs()
    return 2 * float(stdtr(freedom, -float(gap / error))) if gap > 0 else 1.0
