"""Draws the references of the Gap statistic: rows without structure, as inner products.

Each row is drawn uniformly over the range of each column. Among many rows, only the columns with the widest ranges are
drawn. The inner products over all other columns, of which none stands out, are drawn as what they tend to with their
number: a Wishart matrix whose entries have the means and covariances of these sums. So wide layers take no longer than
narrow ones.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from snowball.defenses.snowball.lloyd_step import MANY_ROWS
from snowball.products import centre_products, multiply_by_itself, split_columns, sum_products
from snowball.updates import Updates

MOST_COLUMNS = 1 << 16
"""The most columns that references have; wider layers are sampled, since more columns change only the scale."""

WIDEST = 512
"""Columns that are drawn among many rows, those with the widest ranges."""

ENOUGH_COLUMNS = 4
"""The other columns are drawn, too, unless they count as this many columns of one range for each row."""


def measure_ranges(updates: Updates, layer: str, rng: torch.Generator) -> Tensor:
    """Return the (w,) ranges of a layer's columns, in float64."""
    columns = updates.layout.columns[layer]
    chosen = torch.randperm(columns.stop - columns.start, generator=rng)[:MOST_COLUMNS].sort().values
    blocks = [chosen[part] for part in split_columns(slice(0, len(chosen)), len(updates))]
    return torch.cat([_measure_block(updates.read_columns(columns.start + block)) for block in blocks]).double()


def _measure_block(values: Tensor) -> Tensor:
    return values.amax(0) - values.amin(0)


def draw_reference(rows: int, ranges: Tensor, rng: torch.Generator) -> Tensor:
    """Return the Gram matrix of rows drawn uniformly over the columns' (w,) ranges."""
    if rows < MANY_ROWS or len(ranges) <= WIDEST:
        drawn = torch.rand(rows, len(ranges), generator=rng, dtype=ranges.dtype) * ranges
        drawn -= drawn.mean(0)
        return drawn @ drawn.T
    ranges = ranges.sort(descending=True).values
    rest = ranges[WIDEST:] ** 2 / 12  # the variances
    if not count_equal_columns(rest) >= ENOUGH_COLUMNS * rows:
        return centre_products(sum_products(rows, _draw_blocks(rows, ranges, rng)))
    drawn = sum_products(rows, _draw_blocks(rows, ranges[:WIDEST], rng))
    return centre_products(drawn.add_(draw_products(rows, rest, rng)))


def _draw_blocks(rows: int, ranges: Tensor, rng: torch.Generator) -> Iterator[Tensor]:
    """Yield the rows about the middles of the ranges, as (n, w) blocks of columns."""
    for columns in split_columns(slice(0, len(ranges)), rows):
        drawn = torch.rand(rows, columns.stop - columns.start, generator=rng, dtype=ranges.dtype)
        yield drawn.sub_(0.5).mul_(ranges[columns])


def count_equal_columns(variances: Tensor) -> float:
    """Return the number of columns of one variance whose sum varies as much, in proportion, as that of these."""
    return float(1 / (variances / variances.sum()).square().sum()) if variances.any() else 0.0


def draw_products(rows: int, variances: Tensor, rng: torch.Generator) -> Tensor:
    """Return (n, n) inner products as those over columns of uniform numbers with these (w,) variances.

    The Wishart matrix is drawn by its Cholesky factor (Bartlett 1933). It is that of normal numbers, whose squares have
    a variance 2.5 times that of uniform ones, so the rows get other lengths.
    """
    count, square = count_equal_columns(variances), variances.sum()
    lower = torch.randn(rows, rows, generator=rng, dtype=variances.dtype)
    roots = (count - 0.5 - torch.arange(rows)).sqrt() + lower.diagonal() / 2**0.5  # Fisher's roots of chi-squares
    products = multiply_by_itself(lower.tril_(-1) + roots.diag()) * (square / count)
    lengths = square + (products.diagonal() - square) / 2.5**0.5
    stretch = (lengths / products.diagonal()).sqrt()
    return products * torch.outer(stretch, stretch)
