"""Trimmed mean: average every coordinate without its largest and smallest values.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
As long as the malicious updates do not outnumber the values trimmed at one end, the remaining values of a coordinate
lie within the range of the benign ones.

Deviations: a share that would trim everything is reduced so that one or two values are left.
"""

from dataclasses import dataclass
from math import ceil, floor

import torch

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import check_count, count_rows, elect_everyone, sort_rows
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class TrimmedMean:
    """Average every coordinate without its highest and lowest values.

    Attributes:
        trim: values to drop at each end, as a number or as a share of the updates, rounded down (the paper's beta).
    """

    trim: int | float = 0.2

    def __post_init__(self) -> None:
        """Refuse a setting that is neither a share nor a number."""
        check_count("trim", self.trim)

    @property
    def min_updates(self) -> int:
        """The number of updates from which at least one value is dropped at each end."""
        if isinstance(self.trim, int):
            return 2 * self.trim + 1
        return max(3, ceil(round(1 / self.trim, 9))) if self.trim else 1

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Reduce column by column; every row counts as elected."""
        trimmed = self._trimmed(len(updates))
        kept = slice(trimmed, len(updates) - trimmed)
        delta = updates.reduce_columns(lambda block: sort_rows(block)[:, kept].mean(1, dtype=torch.float64))
        return Verdict(delta, elect_everyone(updates), {"trimmed": trimmed})

    def _trimmed(self, rows: int) -> int:
        if isinstance(self.trim, float):
            return min(count_rows(self.trim, rows, floor), (rows - 1) // 2)
        if 2 * self.trim >= rows:
            raise SettingError(f"trimming {self.trim} at each end needs over {2 * self.trim} updates, got {rows}")
        return self.trim
