"""The columns of a row: which tensors of a model are in it, and where."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snowball.arrays import Arrays, allocate_rows, refuse_broken, split_blocks
from snowball.buffers import Buffers
from snowball.errors import UpdateError

BUFFER_SUFFIXES = ("running_mean", "running_var", "num_batches_tracked")
"""Suffixes of the names of batch normalisation's buffers. The last is a counter, which averaging strategies convert to
a floating-point number."""

Columns = slice | np.ndarray[Any, np.dtype[np.int64]]
"""Columns of a row or of a tensor: from one to another, or by their numbers."""


@dataclass(frozen=True)
class Layout:
    """The columns of a row that belong to each tensor of a model."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_tensors(cls, tensors: Arrays) -> "Layout":
        """Return the layout of a model's tensors, in their order."""
        return cls(tuple(tensors), tuple(tuple(tensor.shape) for tensor in tensors.values()))

    @cached_property
    def columns(self) -> dict[str, slice]:
        """The columns of each tensor by name."""
        edges = np.cumsum([0, *(prod(shape) for shape in self.shapes)]).tolist()
        return {name: slice(*edges[i : i + 2]) for i, name in enumerate(self.names)}

    def find_parts(self, columns: Columns) -> Iterator[tuple[str, Columns, Columns]]:
        """Yield the tensors that some columns belong to: name, columns in the tensor, and their place among the given.

        A slice has both ends, and a step of one.
        """
        for name, own in self.columns.items():
            if isinstance(columns, slice):
                start, stop = max(columns.start, own.start), min(columns.stop, own.stop)
                if start < stop:
                    places = slice(start - columns.start, stop - columns.start)
                    yield name, slice(start - own.start, stop - own.start), places
            elif len(found := np.flatnonzero((columns >= own.start) & (columns < own.stop))):
                yield name, columns[found] - own.start, found

    @property
    def width(self) -> int:
        """The number of columns in a row."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of the weight layers: tensors of two or more dimensions, or all tensors if there are none."""
        matrices = tuple(name for name, shape in zip(self.names, self.shapes, strict=True) if len(shape) > 1)
        return matrices or self.names

    @property
    def head(self) -> tuple[str, ...]:
        """The names of the tensors of the last weight layer, its bias included."""
        owner = self.weights[-1].rpartition(".")[0]
        return tuple(name for name in self.names if name.rpartition(".")[0] == owner)

    def flatten(self, tensors: Arrays) -> Tensor:
        """Return a model's tensors as one row."""
        self.check(tensors)
        return torch.cat([torch.as_tensor(tensors[name]).reshape(-1) for name in self.names])

    def to_row(self, model: Mapping[str, Tensor]) -> Tensor:
        """Return a model's tensors as one row of the type in which rows are compared."""
        self.check(model)
        row = allocate_rows((self.width,), choose_row_type(model))
        for name, columns in self.columns.items():
            row[columns] = model[name].reshape(-1)
        return row

    def subtract(self, origin: Tensor, models: Iterable[Arrays], count: int) -> Tensor:
        """Return the (n, d) differences of `count` models from the model in a row."""
        values = allocate_rows((count, self.width), origin.dtype)
        for row, tensors in zip(values, models, strict=True):
            self.check(tensors)
            for name, columns in self.columns.items():
                sent = torch.as_tensor(tensors[name]).reshape(-1).to(row.dtype)
                torch.sub(sent, origin[columns], out=row[columns])
        return values

    def split(self, row: Tensor) -> dict[str, Tensor]:
        """Return a model's tensors as views of one row."""
        return {
            name: row[columns].view(shape)
            for (name, columns), shape in zip(self.columns.items(), self.shapes, strict=True)
        }

    def add_change(self, model: Mapping[str, Tensor], change: Tensor, row: Tensor) -> None:
        """Write the sum of a model's tensors, as a row, and a (d,) change to `row`, which may be the change itself."""
        dtype = choose_row_type({name: model[name] for name in self.names})
        for name, columns in self.columns.items():
            blocks = (split_blocks(numbers) for numbers in (model[name], change[columns], row[columns]))
            for own, step, target in zip(*blocks, strict=True):
                torch.add(own.to(dtype), step, out=target)

    def rebuild_model(self, model: Mapping[str, Tensor], row: Tensor, buffers: Buffers) -> dict[str, Tensor]:
        """Return a model with another row and other buffers, in its own types, whose range may be smaller than a row's.

        Tensors of the row's type are parts of its memory, each with a storage of its own. Numbers that are not finite
        are refused.
        """
        trained = {
            name: torch.from_numpy(row.numpy()[columns]).view(shape).to(model[name].dtype)
            for (name, columns), shape in zip(self.columns.items(), self.shapes, strict=True)
        }
        tensors = trained | buffers
        refuse_broken(list(tensors.values()))
        return {name: tensors[name] for name in model}

    def check(self, tensors: Arrays, owner: str = "the update") -> None:
        """Refuse tensors with other names or shapes."""
        if set(tensors) != set(self.names):
            missing, extra = sorted(set(self.names) - set(tensors)), sorted(set(tensors) - set(self.names))
            raise UpdateError(f"{owner} does not match the model: missing {missing}, unexpected {extra}")
        for name, shape in zip(self.names, self.shapes, strict=True):
            if tuple(tensors[name].shape) != shape:
                raise UpdateError(f"{name!r} of {owner} has shape {tuple(tensors[name].shape)}, the model's is {shape}")


def select_parameters(model: nn.Module | Mapping[str, Tensor], buffers: Collection[str] = ()) -> dict[str, Tensor]:
    """Return the tensors of a model that belong in a row: the trained ones.

    All others, such as running statistics and counters, are buffers: they are not trained and are not a direction to
    vote on, and they are averaged over the elected clients. A module knows its parameters. In a mapping,
    floating-point tensors are parameters unless `buffers` names them or their names end like those of batch
    normalisation's buffers.
    """
    if isinstance(model, nn.Module):
        return {name: parameter.detach() for name, parameter in model.named_parameters()}
    parameters = {
        name: tensor
        for name, tensor in model.items()
        if tensor.is_floating_point() and name not in buffers and not name.endswith(BUFFER_SUFFIXES)
    }
    if not parameters:
        raise UpdateError(f"none of the global model's {len(model)} tensors is trained")
    return parameters


def choose_row_type(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return float64 for a model entirely in float64, and float32 for all others."""
    return torch.float64 if all(t.dtype == torch.float64 for t in tensors.values()) else torch.float32
