"""The rows of models that are in memory: their differences from one model, computed when they are read."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.arrays import allocate_rows, split_blocks
from snowball.layout import Columns, Layout, choose_row_type

ROUNDING = 2.0**-52
"""Rounding of one step of a sum in float64, as a share of the numbers added up; twice as much as it can be."""

Vector = Tensor | np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Differences:
    """The rows of models that are in memory: their differences from one model, computed when they are read.

    Averages, single rows and blocks of columns are read straight from the models. Only `to_matrix` makes a copy of all.

    Attributes:
        origin: the tensors of the model to subtract, by name.
        models: (n) the tensors of each model by name, in the shapes of the layout; others are ignored.
        norms: (n,) the length of each row, roughly; finite only if all its numbers are.
        layout: the columns of a row.
    """

    origin: Mapping[str, Tensor]
    models: Sequence[Mapping[str, Tensor]]
    norms: Tensor
    layout: Layout

    def __len__(self) -> int:
        return len(self.models)

    def select(self, rows: Sequence[int]) -> "Differences":
        """Return some of the rows."""
        return replace(self, models=[self.models[row] for row in rows], norms=self.norms[list(rows)])

    def to_matrix(self) -> Tensor:
        """Return the (n, d) matrix of the rows."""
        return self.read_columns(slice(0, self.layout.width), range(len(self)))

    def read_row(self, row: int) -> Tensor:
        """Return one (d,) row."""
        return self.read_columns(slice(0, self.layout.width), [row])[0]

    def read_columns(self, columns: Columns, rows: Sequence[int]) -> Tensor:
        """Return an (n, w) copy of some columns of some rows."""
        width = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
        block = allocate_rows((len(rows), width), self.dtype).numpy()
        for name, inside, places in self.layout.find_parts(columns):
            own, sent = read_numbers(self._own_vectors[name], inside, block.dtype), self._vectors[name]
            for target, row in zip(block, rows, strict=True):
                numbers = read_numbers(sent[row], inside, block.dtype)
                if isinstance(places, slice):
                    np.subtract(numbers, own, out=target[places])  # half the time of an assignment
                else:
                    target[places] = numbers - own
        return torch.from_numpy(block)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The data type of the rows."""
        return choose_row_type({name: self.origin[name] for name in self.layout.names})

    @cached_property
    def _own_vectors(self) -> dict[str, Vector]:
        """The numbers of each tensor of the model to subtract; views, if they are contiguous."""
        return {name: flatten_tensor(self.origin[name]) for name in self.layout.names}

    @cached_property
    def _vectors(self) -> dict[str, list[Vector]]:
        """The numbers of each tensor, model by model; views, if they are contiguous."""
        return {name: [flatten_tensor(model[name]) for model in self.models] for name in self.layout.names}

    def combine(self, weights: Sequence[float]) -> Tensor:
        """Return the sum of the rows with (n) weights, accumulated in float64 in the order of the rows."""
        result = allocate_rows((self.layout.width,), self.dtype)
        for name, columns in self.layout.columns.items():
            sent = [split_blocks(model[name]) for model in self.models]
            own, target = split_blocks(self.origin[name]), split_blocks(result[columns])
            for block, start, *ends in zip(target, own, *sent, strict=True):
                block.copy_(sum_differences(start.to(self.dtype), ends, weights))
        return result


@dataclass(frozen=True, eq=False)
class DifferenceRows:
    """Rows of differences, in some order; each is computed again whenever it is read."""

    source: Differences
    slots: Sequence[int]

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.source.read_row, self.slots)

    def __getitem__(self, row: int) -> Tensor:
        return self.source.read_row(self.slots[row])


def flatten_tensor(tensor: Tensor) -> Vector:
    """Return a tensor's numbers as a vector; a view, if it is contiguous.

    Parts of an array take less time to read than parts of a tensor, but NumPy does not know bfloat16.
    """
    flat = tensor.reshape(-1)
    return flat if flat.dtype == torch.bfloat16 else flat.numpy()


def read_numbers(vector: Vector, columns: Columns, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return some numbers of a vector in a type; those that are too large for it become infinite."""
    part = vector[columns].float().numpy() if isinstance(vector, Tensor) else vector[columns]
    if part.dtype == dtype:
        return part
    with np.errstate(over="ignore"):
        return part.astype(dtype)


def sum_differences(origin: Tensor, rows: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the sum in float64 of the differences of rows from `origin`, in its type, with their weights.

    The model is subtracted once, from the sum of the rows. With n rows x and weights w, the result is off by no more
    than (n + 2) 2**-51 times the sum of |w| (|x| + |origin|), and exactly zero where no row differs from the model.
    """
    if origin.dtype == torch.float64:
        return sum_each_difference(origin, rows, weights)
    total = torch.zeros(len(origin), dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        total.add_(row.to(origin.dtype), alpha=weight)
    total.add_(origin, alpha=-math.fsum(weights))
    return drop_rounding(total, origin, ROUNDING * (len(rows) + 2) * math.fsum(map(abs, weights)))


def sum_each_difference(origin: Tensor, rows: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the same sum of differences that are computed one by one, since nothing is wider than float64."""
    total = torch.zeros_like(origin)
    for row, weight in zip(rows, weights, strict=True):
        total.add_(row.to(origin.dtype) - origin, alpha=weight)
    return total


def drop_rounding(total: Tensor, origin: Tensor, share: float) -> Tensor:
    """Set to zero, in place, the numbers that are at most this share of `origin`'s: nothing but rounding."""
    return total.masked_fill_(total.abs() <= origin.abs().mul_(share), 0)
