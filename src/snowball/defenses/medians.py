"""Medians of columns.

Few values per column are sorted by a network of comparisons (Batcher, "Sorting Networks and their Applications", AFIPS
1968): each comparison is a minimum and a maximum of two whole rows, which takes a tenth of the time of sorting columns
one by one. Comparisons that the middle does not depend on are left out.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from snowball.defenses.ops import compute_medians, sort_rows
from snowball.updates import Updates

MAX_NETWORK_ROWS = 16
"""Most rows whose columns are sorted by a network: the number of comparisons grows faster than that of rows."""


class Comparison(NamedTuple):
    """A step of a network: it puts the minimum of two rows in the place of one, and their maximum in that of the other.

    Attributes:
        lower: the place of the minimum.
        upper: the place of the maximum.
        keeps_lower: whether a later step, or the median, reads the minimum.
        keeps_upper: whether one reads the maximum.
    """

    lower: int
    upper: int
    keeps_lower: bool
    keeps_upper: bool


def find_column_medians(updates: Updates) -> Tensor:
    """Return the (d,) median of each column; the mean of the two in the middle, for an even number of rows."""
    if len(updates) <= MAX_NETWORK_ROWS:
        return updates.reduce_blocks(find_medians_by_network)
    return updates.reduce_columns(lambda columns: compute_medians(sort_rows(columns)))


def find_medians_by_network(block: Tensor) -> Tensor:
    """Return the (w,) medians of the columns of an (n, w) block, in float64; the block is overwritten."""
    rows = [row.numpy() for row in (block if block.dtype == torch.float64 else block.float())]
    spare = np.empty_like(rows[0])
    for step in list_comparisons(len(rows)):
        lower, upper = rows[step.lower], rows[step.upper]
        if step.keeps_lower and step.keeps_upper:
            rows[step.lower], spare = np.minimum(lower, upper, out=spare), lower
        elif step.keeps_lower:
            np.minimum(lower, upper, out=lower)
        if step.keeps_upper:
            np.maximum(lower, upper, out=upper)
    low, high = rows[(len(rows) - 1) // 2], rows[len(rows) // 2]
    return torch.from_numpy(np.add(low, high, dtype=np.float64)).mul_(0.5)


@lru_cache
def list_comparisons(rows: int) -> tuple[Comparison, ...]:
    """Return the comparisons that bring the median of this number of rows to the middle."""
    read, steps = {(rows - 1) // 2, rows // 2}, []
    for lower, upper in reversed(list(iterate_network(rows))):
        if lower in read or upper in read:
            steps.append(Comparison(lower, upper, lower in read, upper in read))
            read |= {lower, upper}
    return tuple(reversed(steps))


def iterate_network(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the comparisons of Batcher's odd-even merge sort, for any number of rows."""
    sorted_rows = 1
    while sorted_rows < rows:
        apart = sorted_rows
        while apart:
            for start in range(apart % sorted_rows, rows - apart, 2 * apart):
                for lower in range(start, min(start + apart, rows - apart)):
                    if lower // (2 * sorted_rows) == (lower + apart) // (2 * sorted_rows):
                        yield lower, lower + apart
            apart //= 2
        sorted_rows *= 2
