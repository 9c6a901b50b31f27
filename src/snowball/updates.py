"""The updates of a round as one matrix, and the Gram matrices that elections are based on."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from snowball.buffers import Buffers, merge_buffers
from snowball.errors import UpdateError

BLOCK_ELEMENTS = 1 << 19
"""Elements to convert to float64 at a time: 4 MiB, which fits a cache for any number of rows and columns."""

BUFFER_SUFFIXES = ("running_mean", "running_var", "num_batches_tracked")
"""Suffixes of the names of batch normalisation's buffers. The last is a counter, which averaging strategies convert to
a floating-point number."""

ROW_BLOCK_ELEMENTS = 1 << 17
"""Elements of a row to read at a time: 512 KiB in float32, which fits a cache together with their sum in float64."""

SMALLEST_SHARE = 1e-15
"""Shares of an average up to this one count as zero where shares are limited."""

STRIPS = 5
"""Strips of rows in which a symmetric product is computed, each from its diagonal on: together three fifths of it."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Arrays = Mapping[str, Tensor | np.ndarray]

Columns = slice | np.ndarray[Any, np.dtype[np.int64]]
"""Columns of a row or of a tensor: from one to another, or by their numbers."""

Vector = Tensor | np.ndarray[Any, np.dtype[Any]]


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
        row = allocate_rows((self.width,), _choose_row_type(model))
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

    def rebuild_model(self, model: Mapping[str, Tensor], row: Tensor, buffers: Buffers) -> dict[str, Tensor]:
        """Return a model with another row and other buffers, in its own types, whose range may be smaller than a row's.

        Numbers that are not finite are refused.
        """
        trained = {name: tensor.to(model[name].dtype, copy=True) for name, tensor in self.split(row).items()}
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


@dataclass(frozen=True, eq=False)
class Differences:
    """The rows of models that are in memory: their differences from one model, computed when they are read.

    Averages, single rows and blocks of columns are read straight from the models. Only `to_matrix` makes a copy of all.

    Attributes:
        origin: (d,) the model to subtract, as a row.
        models: (n) the tensors of each model by name, in the shapes of the layout; others are ignored.
        norms: (n,) the length of each row, roughly; finite only if all its numbers are.
        layout: the columns of a row.
    """

    origin: Tensor
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
        trained = ({name: model[name] for name in self.layout.names} for model in self.models)
        return self.layout.subtract(self.origin, trained, len(self))

    def read_row(self, row: int) -> Tensor:
        """Return one (d,) row."""
        return self.select([row]).to_matrix()[0]

    def read_columns(self, columns: Columns, rows: Sequence[int]) -> Tensor:
        """Return an (n, w) copy of some columns of some rows."""
        width = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
        block = np.empty((len(rows), width), self.origin.numpy().dtype)
        for name, inside, places in self.layout.find_parts(columns):
            own, sent = self.origin[self.layout.columns[name]].numpy()[inside], self._vectors[name]
            for target, row in zip(block, rows, strict=True):
                numbers = read_numbers(sent[row], inside, block.dtype)
                if isinstance(places, slice):
                    np.subtract(numbers, own, out=target[places])  # half the time of an assignment
                else:
                    target[places] = numbers - own
        return torch.from_numpy(block)

    @cached_property
    def _vectors(self) -> dict[str, list[Vector]]:
        """The numbers of each tensor, model by model; views, if they are contiguous."""
        return {name: [flatten_tensor(model[name]) for model in self.models] for name in self.layout.names}

    def combine(self, weights: Sequence[float]) -> Tensor:
        """Return the sum of the rows with (n) weights, accumulated in float64 in the order of the rows."""
        result = allocate_rows((self.layout.width,), self.origin.dtype)
        for name, columns in self.layout.columns.items():
            sent = [split_blocks(model[name]) for model in self.models]
            own, target = split_blocks(self.origin[columns]), split_blocks(result[columns])
            for block, start, *ends in zip(target, own, *sent, strict=True):
                block.copy_(sum_differences(start, ends, weights))
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


@runtime_checkable
class Decision(Protocol):
    """The parts of a verdict that change a model."""

    @property
    def delta(self) -> Tensor:
        """The (d,) change of the global model."""
        ...

    @property
    def elected(self) -> Tensor:
        """The (n,) mask of the rows that the change is made from."""
        ...


class Updates:
    """The updates of one round, one row per client; they hold nothing that a server cannot know.

    Rows are in the order of client ids, in whatever order they arrived, so neither the order of arrival nor a client's
    claims influence the result, not even by rounding. Every (n,) tensor here and in a verdict has this order, that of
    `clients`. The given matrix is used in place.

    Attributes:
        clients: (n) stable ids, sorted.
        examples: (n,) number of training examples behind each row.
        layout: the columns of a row.
        buffers: (n) the buffers of the clients' models; empty if they are not known.
        max_share: the largest share of an average that a row may have; 1 sets no limit.
    """

    def __init__(
        self,
        values: Tensor | Differences,
        examples: Tensor,
        clients: Sequence[str],
        layout: Layout,
        buffers: Sequence[Buffers] = (),
        max_share: float = 1.0,
        *,
        finite: bool = False,
    ) -> None:
        """Sort the clients; refuse updates that cannot be judged.

        `values` are local minus global parameters, (n, d) or differences; `finite` says that rows and buffers are
        known to be finite, and saves reading them.
        """
        check_rows(values, examples, clients, layout)
        self._source = values
        self._slots = torch.tensor(sorted(range(len(clients)), key=clients.__getitem__))
        self.clients = tuple(clients[slot] for slot in self._slots.tolist())
        self.examples = examples[self._slots]
        self.layout = layout
        self.buffers = tuple(buffers[slot] for slot in self._slots.tolist()) if buffers else ()
        self.max_share = max_share
        self._products: dict[str | None, Tensor] = {}
        for client, count in zip(self.clients, self.examples.tolist(), strict=True):
            if not 0 < count < float("inf"):
                raise UpdateError(f"client {client!r} reports {count} training examples; a positive number is needed")
        if not finite:
            self._refuse_broken_rows()

    @classmethod
    def from_layers(
        cls,
        layers: Arrays,
        examples: Sequence[float] | Tensor | np.ndarray | None = None,
        clients: Sequence[str] | None = None,
    ) -> "Updates":
        """Make updates from one stacked tensor per layer: `{name: (n, ...)}`.

        A single two-dimensional layer is used in place, so it can be a memory-mapped file of any size.
        """
        check_mapping(layers, "layers")
        if not layers:
            raise UpdateError("updates need at least one layer")
        tensors = {name: convert_to_tensor(layer, f"layer {name!r}") for name, layer in layers.items()}
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
        return cls._from_rows(values, layout, examples, clients)

    @classmethod
    def from_matrix(
        cls,
        values: Tensor | np.ndarray,
        clients: Sequence[str] | None = None,
        examples: Sequence[float] | Tensor | np.ndarray | None = None,
        layers: Mapping[str, int | Sequence[int]] | None = None,
    ) -> "Updates":
        """Make updates from an (n, d) matrix, used in place: one row per client, local minus global parameters.

        `layers` maps the names of layers, in the order of the columns, to a number of columns or to the shape of a
        tensor; without it, a row is a single layer.
        """
        if isinstance(values, Mapping | Updates):
            raise UpdateError(f"values must be a matrix of clients by columns, got {type(values).__name__}")
        rows = convert_to_tensor(values, "values")
        if layers is None:
            layers = {"row": rows.shape[-1] if rows.ndim else 0}
        check_mapping(layers, "layers", "numbers of columns")
        shapes = tuple((shape,) if isinstance(shape, int) else tuple(shape) for shape in layers.values())
        return cls._from_rows(rows, Layout(tuple(layers), shapes), examples, clients)

    @classmethod
    def from_states(
        cls,
        base: Arrays,
        states: Sequence[Arrays],
        examples: Sequence[float] | Tensor | np.ndarray | None = None,
        clients: Sequence[str] | None = None,
        buffers: Collection[str] = (),
    ) -> "Updates":
        """Make updates from the tensors of the global model and of each client's, such as their `state_dict()`s.

        `select_parameters` decides which tensors are in the rows; `buffers` names further ones to leave out.
        """
        check_mapping(base, "the global model")
        if isinstance(states, Mapping | Tensor | np.ndarray | nn.Module):
            raise UpdateError(f"states must be a list with one state per client, got {type(states).__name__}")
        model = {name: convert_to_tensor(tensor, f"{name!r} of the global model") for name, tensor in base.items()}
        kept = select_parameters(model, buffers)
        layout = Layout.from_tensors(kept)
        origin = layout.to_row(kept)
        if not is_finite(origin):
            raise UpdateError("the global model holds NaN or infinite numbers")
        received = list(states)
        names = number_clients(len(received)) if clients is None else list(clients)
        if len(names) != len(received):
            raise UpdateError(f"{len(received)} updates need as many client ids, got {len(names)}")
        read = [read_state(state, model, f"client {name!r}") for state, name in zip(received, names, strict=True)]
        values = layout.subtract(origin, ({name: state[name] for name in kept} for state in read), len(read))
        rest = [{name: state[name].to(own.dtype) for name, own in model.items() if name not in kept} for state in read]
        return cls._from_rows(values, layout, examples, clients, rest)

    @classmethod
    def _from_rows(
        cls,
        values: Tensor,
        layout: Layout,
        examples: Sequence[float] | Tensor | np.ndarray | None,
        clients: Sequence[str] | None,
        buffers: Sequence[Buffers] = (),
    ) -> "Updates":
        if isinstance(clients, str | Set):
            raise UpdateError(f"client ids are needed in the order of the updates, got {type(clients).__name__}")
        count = len(values) if values.ndim else 0
        counts = convert_to_tensor(np.ones(count) if examples is None else examples, "examples", torch.float64)
        names = number_clients(count) if clients is None else list(map(str, clients))
        return cls(values, counts, names, layout, buffers)

    def _refuse_broken_rows(self) -> None:
        for client, measurable in zip(self.clients, self.squared_norms.isfinite().tolist(), strict=True):
            if not measurable:
                raise UpdateError(f"the update of client {client!r} holds NaN, infinite or overflowing numbers")
        for client, kept in zip(self.clients, self.buffers, strict=bool(self.buffers)):
            if not all(map(is_finite, kept.values())):
                raise UpdateError(f"the buffers of client {client!r} hold NaN or infinite numbers")

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the rows."""
        return self._source.origin.dtype if isinstance(self._source, Differences) else self._source.dtype

    @cached_property
    def rows(self) -> list[Tensor] | DifferenceRows:
        """The (d,) row of each client: views of the matrix, or computed from the models whenever one is read."""
        slots = self._slots.tolist()
        if isinstance(self._source, Differences):
            return DifferenceRows(self._source, slots)
        return [self._source[slot] for slot in slots]

    @cached_property
    def values(self) -> Tensor:
        """The rows as an (n, d) matrix: a copy of rows that arrived in another order, or as models.

        `rows`, `read_columns` and `read_blocks` avoid the copy.
        """
        if isinstance(self._source, Differences):
            return self._source.select(self._slots.tolist()).to_matrix()
        return self._source if self._in_order else self._source[self._slots]

    @cached_property
    def squared_norms(self) -> Tensor:
        """The (n,) squared length of each row, in float64."""
        if isinstance(self._source, Tensor):
            return sum_squares(self._source)[self._slots]
        total = torch.zeros(len(self), dtype=torch.float64)
        for _, block in self.read_blocks(slice(0, self.layout.width)):
            total += torch.linalg.vector_norm(block, dim=1) ** 2
        return total

    @property
    def rough_norms(self) -> Tensor:
        """The (n,) length of each row, roughly, without reading the rows."""
        return self._source.norms[self._slots] if isinstance(self._source, Differences) else self.squared_norms.sqrt()

    @cached_property
    def _middle(self) -> int:
        """The number of a row of median length, the origin for comparing all others."""
        lengths = self._source.norms[self._slots] if isinstance(self._source, Differences) else self.squared_norms
        return int(lengths.argsort(stable=True)[(len(self) - 1) // 2])

    @cached_property
    def _by_weight(self) -> Tensor:
        """The (n,) rows by example count, largest first, then by client id: the order in which averages are summed."""
        counts = self.examples.tolist()
        return torch.tensor(sorted(range(len(self)), key=lambda row: -counts[row]))

    def apply(self, state: Arrays, verdict: Decision) -> dict[str, Tensor]:
        """Return the global model after a round: `state`, from which the updates started, plus a verdict's delta.

        Tensors outside the rows are merged over the elected clients if the updates know them; otherwise they stay.
        """
        self._check_verdict(verdict)
        check_mapping(state, "the global model")
        model = {name: convert_to_tensor(tensor, f"{name!r} of the global model") for name, tensor in state.items()}
        trained = {name: tensor for name, tensor in model.items() if name in self.layout.columns}
        self.layout.check(trained, "the global model")
        row = self.layout.to_row(trained) + verdict.delta
        rest = {name: tensor for name, tensor in model.items() if name not in trained}
        after = self.layout.rebuild_model(model, row, rest | self.merge_buffers(verdict.elected, rest))
        return {name: tensor.clone() for name, tensor in after.items()}

    def _check_verdict(self, verdict: Any) -> None:
        if not isinstance(verdict, Decision):
            raise UpdateError(f"a verdict is needed, as a defense returns it, got {type(verdict).__name__}")
        if verdict.elected.shape != (len(self),) or verdict.delta.shape != (self.layout.width,):
            given = f"{verdict.elected.numel()} and {verdict.delta.numel()}"
            raise UpdateError(
                f"a verdict on {len(self)} rows of {self.layout.width} columns is needed, got one on {given}"
            )

    def replace_values(self, values: Tensor) -> "Updates":
        """Return updates of the same clients with other (n, d) rows."""
        return Updates(values, self.examples, self.clients, self.layout, self.buffers, self.max_share)

    def select(self, mask: Tensor) -> "Updates":
        """Return the updates of the clients in an (n,) mask; rows of a matrix are copied."""
        rows = mask.nonzero().flatten().tolist()
        slots = self._slots[mask]
        return Updates(
            self._source.select(slots.tolist()) if isinstance(self._source, Differences) else self._source[slots],
            self.examples[mask],
            [self.clients[row] for row in rows],
            self.layout,
            [self.buffers[row] for row in rows] if self.buffers else (),
            self.max_share,
            finite=True,
        )

    def select_layer(self, name: str) -> "Updates":
        """Return the updates of a single layer; they share the memory of a matrix."""
        layout = Layout((name,), (self.layout.shapes[self.layout.names.index(name)],))
        columns, arrival = self.layout.columns[name], self._slots.argsort()
        if isinstance(self._source, Differences):
            values = self._source.read_columns(columns, range(len(self)))
        else:
            values = self._source[:, columns]
        clients = [self.clients[row] for row in arrival.tolist()]
        return Updates(values, self.examples[arrival], clients, layout, max_share=self.max_share)

    def read_columns(self, columns: slice | Tensor) -> Tensor:
        """Return an (n, w) copy of some columns."""
        if isinstance(columns, slice):
            columns = slice(*columns.indices(self.layout.width))
        if isinstance(self._source, Differences):
            chosen = columns if isinstance(columns, slice) else columns.numpy()
            return self._source.read_columns(chosen, self._slots.tolist())
        if isinstance(columns, slice):
            return self._source[:, columns][self._slots]
        return self._source[self._slots[:, None], columns]

    def read_blocks(
        self, columns: slice, width: int = 0, dtype: torch.dtype = torch.float64
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield some columns, in order, as (n, w) blocks of a type; a block's memory is used again for the next.

        Blocks have `width` columns, or as many as fit a cache.
        """
        width = width or max(1, BLOCK_ELEMENTS // len(self))
        buffer = torch.empty(len(self) * min(width, columns.stop - columns.start), dtype=dtype)
        for start in range(columns.start, columns.stop, width):
            part = slice(start, min(start + width, columns.stop))
            block = buffer[: len(self) * (part.stop - part.start)].view(len(self), -1)
            in_place = isinstance(self._source, Tensor) and self._in_order
            block.copy_(self.values[:, part] if in_place else self.read_columns(part))
            yield part, block

    @cached_property
    def _in_order(self) -> bool:
        """Whether the rows arrived in the order of the clients."""
        return bool((self._slots.diff() > 0).all())

    def products(self, layer: str | None = None) -> Tensor:
        """Return the (n, n) inner products of a layer's rows, or of whole rows, about a median-length row, in float64.

        Distances and clusterings are the same about any origin. With this one, rows of usual length keep exact
        distances however far away another row lies. A far row moves the mean, about which rounding would swamp them.

        The products of whole rows are the sums of the layers', which are computed once. Products and sums are those of
        float64: over w columns, that of the centred rows x and y is off by no more than (w + 2) 2**-53 |x| |y|.
        """
        return self._cached_products(layer).clone()

    def gram(self, layer: str | None = None) -> Tensor:
        """Return the (n, n) inner products of the centred rows of one layer, or of the whole rows, in float64."""
        return centre_products(self._cached_products(layer))

    def _cached_products(self, layer: str | None) -> Tensor:
        if layer is not None and layer not in self.layout.columns:
            raise UpdateError(f"layer {layer!r} is not in the updates, whose layers are {', '.join(self.layout.names)}")
        if layer not in self._products:
            self._products[layer] = (
                sum(map(self._cached_products, self.layout.names), torch.zeros(()))
                if layer is None
                else self._compute_products(self.layout.columns[layer])
            )
        return self._products[layer]

    def _compute_products(self, columns: slice, point: Tensor | None = None) -> Tensor:
        """Return the (n, n) inner products of some columns about a (d,) point, or about a median-length row."""

        def read_centred() -> Iterator[Tensor]:
            for part, block in self.read_blocks(columns):
                yield block.sub_(block[self._middle].clone() if point is None else point[part])

        return sum_products(len(self), read_centred())

    def products_about(self, point: Tensor) -> Tensor:
        """Return the (n, n) inner products of the whole rows about any (d,) point, in float64.

        About zero, they are the inner products of the rows themselves.
        """
        return self._compute_products(slice(0, self.layout.width), point)

    def dot(self, row: Tensor) -> Tensor:
        """Return the (n,) inner products of the rows with another (d,) row, in float64."""
        total = torch.zeros(len(self), dtype=torch.float64)
        for columns, block in self.read_blocks(slice(0, self.layout.width)):
            total += block @ row[columns].to(torch.float64)
        return total

    def normalise(self, weights: Tensor) -> Tensor:
        """Return the (n,) weights divided by their sum, in float64, and none above `max_share`."""
        share = weights[self._by_weight].to(torch.float64)
        share = share / share.max()  # first, or the sum of huge counts could overflow
        return limit_shares(share / share.sum(), self.max_share)[self._by_weight.argsort()]

    def mean(self, weights: Tensor) -> Tensor:
        """Return the rows' average with (n,) weights of any sum; rows of weight zero are not read."""
        return self.combine(self.normalise(weights))

    def combine(self, weights: Tensor) -> Tensor:
        """Return the sum of the rows with (n,) weights; rows of weight zero are not read."""
        rows = self._by_weight[weights[self._by_weight] != 0]
        share, slots = weights[rows].to(torch.float64), self._slots[rows]
        if isinstance(self._source, Differences):
            return self._source.select(slots.tolist()).combine(share.tolist())
        result = torch.empty(self.layout.width, dtype=self.dtype)
        for columns in self._blocks(slice(0, self.layout.width)):
            result[columns] = (share @ self._source[:, columns][slots].to(torch.float64)).to(result.dtype)
        return result

    def merge_buffers(self, elected: Tensor, before: Buffers) -> Buffers:
        """Return the global buffers after a round: merged over the elected if clients sent theirs, else `before`."""
        rows = self._by_weight[elected[self._by_weight]]
        if not self.buffers or not len(rows):
            return before
        weights = self.examples if self.max_share >= 1 else self.normalise(self.examples * elected)
        return merge_buffers([self.buffers[row] for row in rows.tolist()], weights[rows])

    def reduce_columns(self, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Return a (d,) row with one value per column, from a function that gets some columns at a time as (w, n)."""
        result = torch.empty(self.layout.width, dtype=self.dtype)
        for columns in self._blocks(slice(0, self.layout.width)):
            result[columns] = reduce(self.read_columns(columns).T.contiguous()).to(result.dtype)
        return result

    def _blocks(self, columns: slice) -> Iterator[slice]:
        return split_columns(columns, len(self))


def limit_shares(shares: Tensor, limit: float) -> Tensor:
    """Return (n,) shares of a whole, none above the limit: what is cut off goes to the others in proportion.

    If the limit is too low for the number of shares that are not zero, these become equal.
    """
    if float(shares.max()) <= limit:
        return shares
    shares = shares.where(shares > SMALLEST_SHARE, 0)  # the quotients of smaller ones overflow
    held = shares > 0
    if limit * int(held.sum()) <= 1:
        return held.double() / held.sum()
    limited = torch.zeros_like(held)
    while True:
        rest = 1 - limit * int(limited.sum())
        spread = (shares * ~limited) * (rest / shares[~limited].sum())
        above = spread > limit
        if not above.any():
            return torch.where(limited, limit, spread)
        limited |= above


def check_rows(values: Tensor | Differences, examples: Tensor, clients: Sequence[str], layout: Layout) -> None:
    """Refuse rows, example counts and client ids that do not fit together."""
    if isinstance(values, Tensor) and (values.ndim != 2 or values.dtype not in FLOATS):
        shape, dtype = tuple(values.shape), values.dtype
        raise UpdateError(f"updates must be a floating-point matrix of clients by columns, got {dtype} {shape}")
    rows, width = len(values), values.shape[1] if isinstance(values, Tensor) else values.layout.width
    if not rows:
        raise UpdateError("there are no updates to elect from")
    if not width:
        raise UpdateError(f"the {rows} updates have no columns to compare")
    if width != layout.width:
        raise UpdateError(f"rows have {width} columns, the layout has {layout.width}")
    if examples.shape != (rows,) or len(clients) != rows:
        counts = f"{examples.numel()} and {len(clients)}"
        raise UpdateError(f"{rows} updates need as many example counts and client ids, got {counts}")
    if len(set(clients)) != rows:
        twice = next(client for client in clients if clients.count(client) > 1)
        raise UpdateError(f"client {twice!r} sent more than one of the {rows} updates")


def number_clients(count: int) -> list[str]:
    """Return ids for unnamed clients that sort in the order of their numbers: 00, 01 and so on."""
    return [str(number).zfill(len(str(count - 1))) for number in range(count)]


def split_columns(columns: slice, rows: int) -> Iterator[slice]:
    """Yield blocks of columns that fit a cache for this number of rows."""
    width = max(1, BLOCK_ELEMENTS // max(1, rows))
    for start in range(columns.start, columns.stop, width):
        yield slice(start, min(start + width, columns.stop))


def allocate_rows(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised float32 or float64 tensor.

    NumPy asks the system for huge pages, and torch does not: without them, it takes three times as long to fill.
    """
    return torch.from_numpy(np.empty(shape, np.float64 if dtype == torch.float64 else np.float32))


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


def split_blocks(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return a tensor's numbers as blocks that fit a cache; views, if it is contiguous."""
    blocks: tuple[Tensor, ...] = tensor.reshape(-1).split(ROW_BLOCK_ELEMENTS)  # type: ignore[no-untyped-call]
    return blocks


def sum_differences(origin: Tensor, rows: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the sum in float64 of the differences of rows from `origin`, in its type, with their weights."""
    total, change = torch.zeros(len(origin), dtype=torch.float64), torch.empty_like(origin)
    own, out = origin.numpy(), change.numpy()
    for row, weight in zip(rows, weights, strict=True):
        np.subtract(row.to(origin.dtype).numpy(), own, out=out)  # on one thread faster than torch
        total.add_(change, alpha=weight)
    return total


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


@contextmanager
def accept_read_only(values: Any) -> Iterator[None]:
    """Silence torch's warning that an array is not writable, since nobody writes to it."""
    if isinstance(values, Tensor) or (isinstance(values, np.ndarray) and values.flags.writeable):
        yield  # changing filters takes longer than the conversion
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        yield


def convert_to_tensor(values: Any, owner: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return a value as a tensor of real numbers, sharing its memory if possible."""
    try:
        with accept_read_only(values):
            tensor = torch.as_tensor(values, dtype=dtype).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UpdateError(f"{owner} cannot be read as numbers: {str(error).partition(chr(10))[0]}") from error
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise UpdateError(
            f"{owner} must be a plain array of real numbers, got {tensor.dtype} in layout {tensor.layout}"
        )
    return tensor


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


def check_mapping(value: Any, owner: str, content: str = "tensors") -> None:
    """Refuse anything but a mapping."""
    if not isinstance(value, Mapping):
        advice = ": pass its state_dict()" if isinstance(value, nn.Module) else ""
        raise UpdateError(f"{owner} must be a mapping of names to {content}, got {type(value).__name__}{advice}")


def read_state(state: Any, model: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """Return the tensors of a client's model; their names and shapes must be those of the global model."""
    check_mapping(state, f"the state of {owner}")
    tensors = {name: convert_to_tensor(tensor, f"{name!r} of {owner}") for name, tensor in state.items()}
    Layout.from_tensors(model).check(tensors, owner)
    return tensors


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite; a finite sum proves it in one fast pass."""
    return not tensor.is_floating_point() or bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def refuse_broken(tensors: Sequence[Tensor]) -> None:
    """Refuse an average that is not finite."""
    if not all(map(is_finite, tensors)):
        raise UpdateError("the average holds NaN or infinite numbers")


def _choose_row_type(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """Return float64 for a model entirely in float64, and float32 for all others."""
    return torch.float64 if all(t.dtype == torch.float64 for t in tensors.values()) else torch.float32
