"""Median: take the middle value of every coordinate.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
While fewer than half of the updates are malicious, no coordinate leaves the range of the benign ones.

Deviations: none; for an even number of values, the middle two are averaged.
"""

from dataclasses import dataclass
from typing import ClassVar

from snowball.defenses.base import Context, Verdict
from snowball.defenses.medians import find_column_medians
from snowball.defenses.ops import elect_everyone
from snowball.updates import Updates


@dataclass(frozen=True)
class Median:
    """Take the median of every coordinate."""

    min_updates: ClassVar[int] = 3

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Reduce column by column; every row counts as elected."""
        return Verdict(find_column_medians(updates), elect_everyone(updates))
