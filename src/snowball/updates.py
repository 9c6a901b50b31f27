"""What a server receives in a round, as one matrix, and the Gram matrices that elections are made from."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.errors import UpdateError

BLOCK_ELEMENTS = 1 << 19
"""Elements converted to float64 at a time: 4 MiB, which a cache holds, whatever the number of rows and columns."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Arrays = Mapping[str, Tensor | np.ndarray]


@dataclass(frozen=True)
class Layout:
    """Which columns of a row belong to which tensor of the model."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Arrays) -> "Layout":
        """The layout of a model's tensors, in their order."""
        return cls(tuple(tensors), tuple(tuple(tensor.shape) for tensor in tensors.values()))

    @cached_property
    def columns(self) -> dict[str, slice]:
        """The columns of each tensor."""
        edges = np.cumsum([0, *(prod(shape) for shape in self.shapes)]).tolist()
        return {name: slice(*edges[i : i + 2]) for i, name in enumerate(self.names)}

    @property
    def width(self) -> int:
        """Columns in a row."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weight layers: tensors of two or more dimensions, or all tensors where there are none."""
        matrices = tuple(name for name, shape in zip(self.names, self.shapes, strict=True) if len(shape) > 1)
        return matrices or self.names

    def flatten(self, tensors: Arrays) -> Tensor:
        """One row from a model's tensors."""
        self.check(tensors)
        return torch.cat([torch.as_tensor(tensors[name]).reshape(-1) for name in self.names])

    def to_row(self, model: Mapping[str, Tensor]) -> Tensor:
        """One row from a model's tensors, in the type that rows are compared in."""
        return self.flatten(model).to(_row_type(model))

    def subtract(self, origin: Tensor, models: Iterable[Arrays], count: int) -> Tensor:
        """(n, d) how so many models differ from the one in a row."""
        values = origin.new_empty(count, self.width)
        for row, tensors in zip(values, models, strict=True):
            torch.sub(self.flatten(tensors).to(row.dtype), origin, out=row)
        return values

    def split(self, row: Tensor) -> dict[str, Tensor]:
        """A model's tensors from one row, as views."""
        return {
            name: row[columns].view(shape)
            for (name, columns), shape in zip(self.columns.items(), self.shapes, strict=True)
        }

    def check(self, tensors: Arrays, owner: str = "the update") -> None:
        """Refuse tensors of other names or shapes."""
        if set(tensors) != set(self.names):
            missing, extra = sorted(set(self.names) - set(tensors)), sorted(set(tensors) - set(self.names))
            raise UpdateError(f"{owner} does not match the model: missing {missing}, unexpected {extra}")
        for name, shape in zip(self.names, self.shapes, strict=True):
            if tuple(tensors[name].shape) != shape:
                raise UpdateError(f"{name!r} of {owner} has shape {tuple(tensors[name].shape)}, the model's is {shape}")


@dataclass(frozen=True, eq=False)
class Updates:
    """What the server received this round, and nothing it could not know."""

    values: Tensor  # (n, d) local minus global parameters
    examples: Tensor  # (n,) training examples behind each row
    clients: tuple[str, ...]  # (n,) stable ids, for ties and for defenses that keep history
    layout: Layout
    _products: dict[str | None, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be elected from, before any work is done."""
        if self.values.ndim != 2 or self.values.dtype not in FLOATS:
            shape, dtype = tuple(self.values.shape), self.values.dtype
            raise UpdateError(f"updates must be a floating-point matrix of clients by columns, got {dtype} {shape}")
        rows, width = self.values.shape
        if not rows:
            raise UpdateError("there are no updates to elect from")
        if not width:
            raise UpdateError(f"the {rows} updates have no columns to compare")
        if width != self.layout.width:
            raise UpdateError(f"rows have {width} columns, the layout has {self.layout.width}")
        if self.examples.shape != (rows,) or len(self.clients) != rows:
            raise UpdateError(
                f"{rows} updates need as many example counts and client ids, "
                f"got {self.examples.numel()} and {len(self.clients)}"
            )
        if len(set(self.clients)) != rows:
            twice = next(client for client in self.clients if self.clients.count(client) > 1)
            raise UpdateError(f"client {twice!r} sent more than one of the {rows} updates")
        for client, count in zip(self.clients, self.examples.tolist(), strict=True):
            if not 0 < count < float("inf"):
                raise UpdateError(f"client {client!r} reports {count} training examples; a positive number is needed")
        for client, finite in zip(self.clients, self.squared_norms.isfinite().tolist(), strict=True):
            if not finite:
                raise UpdateError(f"the update of client {client!r} holds NaN, infinite or overflowing numbers")

    @classmethod
    def from_layers(
        cls,
        layers: Arrays,
        examples: Sequence[float] | Tensor | np.ndarray | None = None,
        clients: Sequence[str] | None = None,
    ) -> "Updates":
        """Updates from one stacked tensor a layer: `{name: (n, ...)}`.

        A single two-dimensional layer is used in place, so it may be a memory-mapped file of any size.
        """
        if not layers:
            raise UpdateError("updates need at least one layer")
        tensors = {name: as_tensor(layer, f"layer {name!r}") for name, layer in layers.items()}
        for name, tensor in tensors.items():
            if not tensor.ndim:
                raise UpdateError(f"layer {name!r} is a single number, with no entry for each update")
        first, count = next((name, len(tensor)) for name, tensor in tensors.items())
        for name, tensor in tensors.items():
            if len(tensor) != count:
                raise UpdateError(f"layer {name!r} has {len(tensor)} updates, layer {first!r} has {count}")
        layout = Layout(tuple(tensors), tuple(tuple(tensor.shape[1:]) for tensor in tensors.values()))
        flat = [tensor.reshape(count, prod(tensor.shape[1:])) for tensor in tensors.values()]
        values = flat[0] if len(flat) == 1 else torch.cat(flat, 1)
        return cls._of(values, layout, examples, clients)

    @classmethod
    def from_states(
        cls,
        base: Arrays,
        states: Sequence[Arrays],
        examples: Sequence[float] | Tensor | np.ndarray | None = None,
        clients: Sequence[str] | None = None,
    ) -> "Updates":
        """Updates from the global tensors and each client's, e.g. their `state_dict()`s.

        Integer tensors (counters of a normalisation layer) are no direction to vote on and are left out.
        """
        model = {name: as_tensor(tensor, f"{name!r} of the global model") for name, tensor in base.items()}
        kept = {name: tensor for name, tensor in model.items() if tensor.is_floating_point()}
        if not kept:
            raise UpdateError(f"none of the global model's {len(model)} tensors is floating-point")
        layout = Layout.of(kept)
        origin = layout.to_row(kept)
        if not origin.isfinite().all():
            raise UpdateError("the global model holds NaN or infinite numbers")
        received = list(states)
        names = [str(number) for number in range(len(received))] if clients is None else list(clients)
        if len(names) != len(received):
            raise UpdateError(f"{len(received)} updates need as many client ids, got {len(names)}")
        owned = zip(received, names, strict=True)
        read = (_read_state(state, model, layout, f"client {name!r}") for state, name in owned)
        return cls._of(layout.subtract(origin, read, len(received)), layout, examples, clients)

    @classmethod
    def _of(
        cls,
        values: Tensor,
        layout: Layout,
        examples: Sequence[float] | Tensor | np.ndarray | None,
        clients: Sequence[str] | None,
    ) -> "Updates":
        if isinstance(clients, str | Set):
            raise UpdateError(f"client ids are needed in the order of the updates, got {type(clients).__name__}")
        counts = as_tensor(np.ones(len(values)) if examples is None else examples, "examples", torch.float64)
        ids = range(len(values)) if clients is None else clients
        return cls(values, counts, tuple(map(str, ids)), layout)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def order(self) -> Tensor:
        """The rows by example count, largest first, then by client id: the order in which averages are summed.

        They do not depend on the order of arrival, to the last bit. Clients claim their counts, so it decides nothing.
        """
        counts = self.examples.tolist()
        return torch.tensor(sorted(range(len(self)), key=lambda row: (-counts[row], self.clients[row])))

    @cached_property
    def by_client(self) -> Tensor:
        """The rows by client id: the order in which they are compared, so that no claim decides even by rounding."""
        return torch.tensor(sorted(range(len(self)), key=self.clients.__getitem__))

    @cached_property
    def _rank(self) -> Tensor:
        """Each row's place in `by_client`."""
        return self.by_client.argsort()

    @cached_property
    def _middle(self) -> Tensor:
        """A row of median length, which all others are compared about."""
        return self.by_client[self.squared_norms[self.by_client].argsort(stable=True)[(len(self) - 1) // 2]]

    @cached_property
    def squared_norms(self) -> Tensor:
        """(n,) the squared length of each row, in float64."""
        return sum_squares(self.values)

    def products(self, layer: str | None = None) -> Tensor:
        """(n, n) inner products of the rows of a layer, or of the whole rows, about a row of median length, in float64.

        Distances and clusterings are the same about any point. About this one, rows of usual length keep theirs exactly
        however far away another row lies; about the mean, which the far one moves, they would drown in rounding.
        """
        return self._ordered_products(layer)[self._rank][:, self._rank]

    def gram(self, layer: str | None = None) -> Tensor:
        """(n, n) inner products of the centred rows of one layer, or of the whole rows, in float64."""
        return centred(self._ordered_products(layer))[self._rank][:, self._rank]

    def _ordered_products(self, layer: str | None) -> Tensor:
        if layer is not None and layer not in self.layout.columns:
            raise UpdateError(f"layer {layer!r} is not in the updates, whose layers are {', '.join(self.layout.names)}")
        if layer not in self._products:
            names = self.layout.names if layer is None else (layer,)
            self._products[layer] = sum(map(self._layer_products, names), torch.zeros(()))
        return self._products[layer]

    def _layer_products(self, name: str) -> Tensor:
        if name in self._products:
            return self._products[name]
        return sum_of_products(len(self), map(self._centred_block, self._blocks(self.layout.columns[name])))

    def _centred_block(self, columns: slice) -> Tensor:
        """(n, w) some columns of the rows in `by_client`, about a row of median length, in float64."""
        block = self.values[:, columns][self.by_client].to(torch.float64)
        return block.sub_(self.values[self._middle, columns].to(torch.float64))

    def products_about(self, point: Tensor) -> Tensor:
        """(n, n) inner products of the whole rows about any point (d,), in float64: about zero, those of the rows."""
        middle = self.values[self._middle].to(torch.float64)
        offset = middle - point.to(torch.float64)
        along = self.dot(offset) - middle @ offset  # (n,) of the rows about the middle one
        return self.products() + along + along[:, None] + offset @ offset

    def dot(self, row: Tensor) -> Tensor:
        """(n,) inner products of the rows with another one (d,), in float64."""
        total = torch.zeros(len(self), dtype=torch.float64)
        for columns in self._blocks(slice(0, self.layout.width)):
            total += self.values[:, columns][self.by_client].to(torch.float64) @ row[columns].to(torch.float64)
        return total[self._rank]

    def mean(self, weights: Tensor) -> Tensor:
        """The rows' average with these (n,) weights, which need not add up to one; rows of weight zero are not read."""
        share = weights[self.order].to(torch.float64)
        share = share / share.max()  # first, so that no sum of huge counts overflows
        return self.combine((share / share.sum())[self.order.argsort()])

    def combine(self, weights: Tensor) -> Tensor:
        """The rows' sum with these (n,) weights; rows of weight zero are not read."""
        order = self.order[weights[self.order] != 0]
        share = weights[order].to(torch.float64)
        result = torch.empty(self.layout.width, dtype=self.values.dtype)
        for columns in self._blocks(slice(0, self.layout.width)):
            result[columns] = (share @ self.values[:, columns][order].to(torch.float64)).to(result.dtype)
        return result

    def by_column(self, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """A row of what a function makes of each column: it is given (n, w) some at a time, as (w, n) in `order`."""
        result = torch.empty(self.layout.width, dtype=self.values.dtype)
        for columns in self._blocks(slice(0, self.layout.width)):
            result[columns] = reduce(self.values[self.order, columns].T.contiguous()).to(result.dtype)
        return result

    def _blocks(self, columns: slice) -> Iterator[slice]:
        return split_columns(columns, len(self))


def split_columns(columns: slice, rows: int) -> Iterator[slice]:
    """Columns in blocks of which so many rows fit a cache."""
    width = max(1, BLOCK_ELEMENTS // max(1, rows))
    for start in range(columns.start, columns.stop, width):
        yield slice(start, min(start + width, columns.stop))


def sum_squares(values: Tensor) -> Tensor:
    """(n,) the squared length of each row of a matrix, in float64; not finite where a row is not."""
    total = torch.zeros(len(values), dtype=torch.float64)
    for columns in split_columns(slice(0, values.shape[1]), len(values)):
        total += torch.linalg.vector_norm(values[:, columns], dim=1, dtype=torch.float64) ** 2
    return total


def sum_of_products(rows: int, blocks: Iterable[Tensor]) -> Tensor:
    """(n, n) inner products of rows that come as blocks of columns (n, w) in float64; symmetric to the last bit."""
    total, half = torch.zeros(rows, rows, dtype=torch.float64), rows // 2
    for block in blocks:
        total[:half].addmm_(block[:half], block.T)
        total[half:, half:].addmm_(block[half:], block[half:].T)
    total[half:, :half] = total[:half, half:].T  # a quarter that need not be computed twice
    return (total + total.T) / 2


def centred(products: Tensor) -> Tensor:
    """(n, n) inner products about the rows' mean, from those about any point."""
    means = products.mean(0)
    return products - means - means[:, None] + means.mean()


def as_tensor(values: Any, owner: str, dtype: torch.dtype | None = None) -> Tensor:
    """What somebody sent as a tensor of real numbers, sharing its memory where possible."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor is it ever written to
            tensor = torch.as_tensor(values, dtype=dtype).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UpdateError(f"{owner} cannot be read as numbers: {str(error).partition(chr(10))[0]}") from error
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise UpdateError(
            f"{owner} must be a plain array of real numbers, got {tensor.dtype} in layout {tensor.layout}"
        )
    return tensor


def _read_state(state: Any, model: Arrays, layout: Layout, owner: str) -> dict[str, Tensor]:
    """A client's tensors that are compared, refused unless they are the model's."""
    if not isinstance(state, Mapping):
        raise UpdateError(f"{owner} sent {type(state).__name__}, not tensors by name")
    compared = [name for name in state if name in layout.columns or name not in model]
    tensors = {name: as_tensor(state[name], f"{name!r} of {owner}") for name in compared}
    layout.check(tensors, owner)
    return tensors


def _row_type(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """float64 models stay float64; everything else is compared in float32."""
    return torch.float64 if all(t.dtype == torch.float64 for t in tensors.values()) else torch.float32
