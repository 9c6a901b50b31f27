"""The updates of a round as one matrix, and the Gram matrices that elections are based on."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from snowball.arrays import Arrays, check_mapping, convert_to_tensor, is_finite
from snowball.buffers import Buffers, merge_buffers
from snowball.decision import Decision, check_decision
from snowball.differences import DifferenceRows, Differences
from snowball.errors import UpdateError
from snowball.layout import Layout
from snowball.products import centre_products, fit_columns, split_columns, sum_products, sum_squares
from snowball.shares import limit_shares
from snowball.sources import check_rows, number_clients, stack_layers, subtract_states


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
        values, layout = stack_layers(layers)
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
        rows = subtract_states(base, states, clients, buffers)
        return cls._from_rows(rows.values, rows.layout, examples, clients, rows.buffers)

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
        return self._source.dtype

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
        check_decision(verdict, len(self), self.layout.width)
        check_mapping(state, "the global model")
        model = {name: convert_to_tensor(tensor, f"{name!r} of the global model") for name, tensor in state.items()}
        trained = {name: tensor for name, tensor in model.items() if name in self.layout.columns}
        self.layout.check(trained, "the global model")
        row = self.layout.to_row(trained) + verdict.delta
        rest = {name: tensor for name, tensor in model.items() if name not in trained}
        after = self.layout.rebuild_model(model, row, rest | self.merge_buffers(verdict.elected, rest))
        return {name: tensor.clone() for name, tensor in after.items()}

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
        width = width or fit_columns(len(self))
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
        return self.reduce_blocks(lambda block: reduce(block.T.contiguous()))

    def reduce_blocks(self, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the same, from a function that gets them as an (n, w) copy, which it may overwrite."""
        result = torch.empty(self.layout.width, dtype=self.dtype)
        for columns in self._blocks(slice(0, self.layout.width)):
            result[columns] = reduce(self.read_columns(columns)).to(result.dtype)
        return result

    def _blocks(self, columns: slice) -> Iterator[slice]:
        return split_columns(columns, len(self))
