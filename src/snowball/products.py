"""Lengths and inner products of many rows, in blocks of columns that fit a cache."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 19
"""Elements to convert to float64 at a time: 4 MiB, which fits a cache for any number of rows and columns."""

STRIPS = 5
"""Strips of rows in which a symmetric product is computed, each from its diagonal on: together three fifths of it."""


def fit_columns(rows: int) -> int:
    """Return how many columns of this number of rows fit a cache."""
    return max(1, BLOCK_ELEMENTS // max(1, rows))


def split_columns(columns: slice, rows: int) -> Iterator[slice]:
    """Yield blocks of columns that fit a cache for this number of rows."""
    width = fit_columns(rows)
    for start in range(columns.start, columns.stop, width):
        yield slice(start, min(start + width, columns.stop))


def sum_squares(values: Tensor) -> Tensor:
    """Return the (n,) squared length of each row of a matrix, in float64; not finite if the row is not."""
    total = torch.zeros(len(values), dtype=torch.float64)
    for columns in split_columns(slice(0, values.shape[1]), len(values)):
        total += torch.linalg.vector_norm(values[:, columns], dim=1, dtype=torch.float64) ** 2
    return total


def sum_products(rows: int, blocks: Iterable[Tensor]) -> Tensor:
    """Return the (n, n) inner products of rows given as (n, w) blocks of columns in float64; exactly symmetric.

    Only the upper triangle is computed, in strips: three fifths of the product. NumPy computes half of it, but on as
    many threads as the machine has cores, and rounding would depend on them.
    """
    total, height = torch.zeros(rows, rows, dtype=torch.float64), -(-rows // STRIPS)
    for block in blocks:
        for start in range(0, rows, height):
            total[start : start + height, start:].addmm_(block[start : start + height], block[start:].T)
    return total.triu() + total.triu(1).T


def multiply_by_itself(block: Tensor) -> Tensor:
    """Return the (n, n) inner products of (n, w) rows in float64; exactly symmetric."""
    return sum_products(len(block), [block])


def centre_products(products: Tensor) -> Tensor:
    """Return the (n, n) inner products about the rows' mean, from those about any point."""
    means = products.mean(0)
    return products - means - means[:, None] + means.mean()
