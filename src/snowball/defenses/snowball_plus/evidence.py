"""The evidence for the ballots: one blockwise pass over the updates, then only small matrices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from snowball.defenses.ops import compute_cosines
from snowball.layout import Layout
from snowball.products import centre_products
from snowball.updates import Updates

BLOCK_ELEMENTS = 1 << 19
"""Elements to compare at a time: 2 MiB in float32, which fits a cache."""

LONG_BLOCK_ROWS = 128
"""Blocks of more rows keep the width of blocks of this many, since short pieces of rows take longer to read."""

MIN_CLASSES = 4
"""With fewer outputs, it means nothing that many lean to one class: with two classes, half of all lean to each."""


HIDDEN, ALL = "the hidden layers", "all layers"
"""Views of several layers together, by their names in the text of a charge."""

POSITIONS = "positions of the image"
"""The key of an update's energy per position of an image, next to its energies per input of a layer."""

MIN_POSITIONS = 4
"""With fewer positions, a layer does not show where in an image something changed."""

MAX_POSITIONS = 64
"""The most positions that are told apart; in a larger map, neighbours count as one, since each takes n x n numbers."""

ROUNDING = 1e-12
"""Share of a row's energy below which its energy about the mean is only rounding."""

STRIPS = 5
"""The most strips of rows in which products are computed."""

MIN_STRIP = 64
"""The least rows in such a strip; those of few rows take as long as the whole."""

USUAL_EXPONENT = 20
"""Rows whose lengths are within 2 to the power of this, or of minus this, are compared as they are."""

MAX_EXPONENT = 126
"""Powers of two up to this one are normal numbers in float32, and so are their inverses."""

SMALLEST_LENGTH = 1e-30
"""The least length whose logarithm is taken; shorter ones are raised to it."""


@dataclass(frozen=True)
class Recalled:
    """The traits that suspects of earlier rounds had in common, by hidden layer.

    Attributes:
        directions: (w,) mean difference of their unit rows from those of the others.
        inputs: (fan-in,) the same for their shares of energy over a layer's inputs, or over positions.
    """

    directions: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A round as the ballots see it.

    Attributes:
        lengths: (n,) lengths of the whole rows.
        layer_lengths: (n,) lengths of the rows, by weight layer.
        directions: (n, n) centred cosines between the rows of each view: every weight layer, `HIDDEN` and `ALL`.
        inputs: (n, fan-in) square roots of each input's share of a row's energy, by hidden layer; and under
            `POSITIONS`, if there are any, (n, positions) those of each position of an image.
        positions: (positions, n, n) centred inner products of the rows at each position of an image, in units of the
            rows' lengths in that layer; None if there are no positions.
        leans: (n, classes) how far each row raises each class, in unit rows; None if there are too few classes.
        looks: (n, classes) how similar the features are on which a row and the others raise a class, on average; NaN
            for rows that do not raise it. None if `leans` is.
        fits: (n, classes) cosines of the last layer's weights per class with the model's; None without a model or
            `leans`.
        alignment: (n,) how far a row undoes the global model: minus their cosine; None without a model.
        recalled_directions: (n,) how far each unit row points in the direction of earlier suspects, by hidden layer.
        recalled_inputs: (n,) the same for the shares of energy.
    """

    lengths: Tensor
    layer_lengths: Mapping[str, Tensor]
    directions: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    positions: Tensor | None
    leans: Tensor | None
    looks: Tensor | None
    fits: Tensor | None
    alignment: Tensor | None
    recalled_directions: Mapping[str, Tensor]
    recalled_inputs: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def log_lengths(self) -> Tensor:
        """The (n,) logarithms of the lengths; that of a row of zeros is very low."""
        return self.lengths.clamp(min=SMALLEST_LENGTH).log()


def find_hidden_layers(layout: Layout) -> tuple[str, ...]:
    """Return the weight layers before the last one, or the only one if the model has no other."""
    return layout.weights[:-1] or layout.weights


def gather_evidence(updates: Updates, base: Tensor | None, recalled: Recalled | None) -> Evidence:
    """Gather the evidence of a round: read every column once, and the last layer once more, for those who lean."""
    layout, rows, hidden = updates.layout, len(updates), find_hidden_layers(updates.layout)
    placed, last = find_placed_layer(layout), layout.weights[-1]
    at_positions = torch.zeros(placed.positions if placed else 0, rows, rows, dtype=torch.float64)
    directions = recalled.directions if recalled else {}
    products = {name: torch.zeros(rows, rows, dtype=torch.float64) for name in layout.weights}
    energy = {
        name: torch.zeros(rows, fan_in(layout, name), dtype=torch.float64)
        for name in {*hidden, *([placed.layer] if placed else [])}
    }
    moments = Moments.start(rows, count_classes(layout), max(1, fan_in(layout, last)))
    other_squares = torch.zeros(rows, dtype=torch.float64)
    along_recalled = {name: torch.zeros(rows, dtype=torch.float64) for name in directions}
    along_base, base_square = torch.zeros(rows, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for name in layout.names:
        here = placed if placed and name == placed.layer else None
        for columns, inside, block in read_blocks(updates, name, here.cells if here else 1):
            model = None if base is None else base[columns].to(block.dtype)
            if model is not None:
                along_base += block @ model
                base_square += model.double().square().sum()
            if here:
                add_position_products(at_positions, block, here)
            elif name in products:
                add_products(products[name], block)
            else:
                other_squares += torch.linalg.vector_norm(block, dim=1).double().square()
            if name in directions:
                along_recalled[name] += block @ directions[name][inside].to(block.dtype)
            if name in energy:
                add_energy(energy[name], block, inside.start)
            if name == last:
                moments.add(block, model, inside.start)
    at_positions = mirror_triangle(at_positions)
    products = {name: mirror_triangle(each) for name, each in products.items()}
    if placed:
        products[placed.layer] = at_positions.sum(0)
    layer_lengths = {name: each.diagonal().clamp(min=0).sqrt() for name, each in products.items()}
    lengths = sum((each.square() for each in layer_lengths.values()), other_squares).sqrt()
    views = {**{name: (name,) for name in layout.weights}, HIDDEN: hidden, ALL: layout.weights}
    shares = {name: share_energy(energy[name]) for name in hidden}
    if placed:
        shares[POSITIONS] = share_energy(add_up_positions(energy[placed.layer], placed))
    leans, units = measure_leans(moments.sums), choose_units(updates)
    return Evidence(
        lengths * units,
        {name: each * units for name, each in layer_lengths.items()},
        {view: compare_directions(layout, products, names) for view, names in views.items()},
        shares,
        compare_at_positions(at_positions, layer_lengths[placed.layer]) if placed else None,
        leans,
        None if leans is None else compare_looks(updates, find_leaning(leans), moments),
        None if leans is None or base is None else moments.compare_with_model(),
        None if base is None or not base_square else -divide_or_zero(along_base, lengths * base_square.sqrt()),
        {name: divide_or_zero(along, layer_lengths[name]) for name, along in along_recalled.items()},
        {name: shares[name] @ each for name, each in (recalled.inputs if recalled else {}).items()},
    )


def choose_units(updates: Updates) -> Tensor:
    """Return the (n,) powers of two that rows are divided by, so that their products fit the range of float32.

    A row of usual length has 1. A layer of a row that is 1e-18 times as long as the row counts as zero.
    """
    _, exponents = np.frexp(updates.rough_norms.numpy())
    far = np.abs(exponents) > USUAL_EXPONENT
    return torch.from_numpy(np.ldexp(1.0, np.where(far, exponents.clip(-MAX_EXPONENT, MAX_EXPONENT), 0)))


def read_blocks(updates: Updates, name: str, unit: int = 1) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield a layer in blocks of columns: their indices in the model and in the layer, and the (n, w) rows.

    The rows are in float64 if they were sent so, in float32 otherwise, and divided by `choose_units`. A block holds
    whole outputs, or a part of a single output that is too wide: a multiple of `unit`, which divides the number of
    inputs. Its memory is used again for the next.
    """
    own, inputs = updates.layout.columns[name], max(1, fan_in(updates.layout, name))
    most = max(1, BLOCK_ELEMENTS // min(len(updates), LONG_BLOCK_ROWS) // unit) * unit
    width = most - most % inputs
    parts = [own] if width else [slice(start, start + inputs) for start in range(own.start, own.stop, inputs)]
    dtype, units = torch.promote_types(updates.dtype, torch.float32), choose_units(updates)
    scale = None if bool((units == 1).all()) else (1 / units).to(dtype)[:, None]
    for part in parts:
        for columns, block in updates.read_blocks(part, width or most, dtype):
            if scale is not None:
                block *= scale
            yield columns, slice(columns.start - own.start, columns.stop - own.start), block


def fan_in(layout: Layout, name: str) -> int:
    """Return the number of inputs of a weight layer: the product of its shape after the outputs."""
    shape = layout.shapes[layout.names.index(name)]
    return prod(shape[1:])


def count_classes(layout: Layout) -> int:
    """Count the outputs of the last weight layer; a scalar, which a model without matrices may end in, has one."""
    shape = layout.shapes[layout.names.index(layout.weights[-1])]
    return shape[0] if shape else 1


class PlacedLayer(NamedTuple):
    """The layer that sees an image position by position: the first dense layer after a convolution.

    Attributes:
        cells: the number of positions in a channel's map.
        span: the number of neighbouring cells that count as one position.
    """

    layer: str
    cells: int
    span: int

    @property
    def positions(self) -> int:
        """The number of positions that are told apart."""
        return -(-self.cells // self.span)


def find_placed_layer(layout: Layout) -> PlacedLayer | None:
    """Find the placed layer; None if there is none, or if it sees too few positions to tell them apart.

    Its inputs are the channels of the convolution before it, each with all its positions.
    """
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    for before, name in pairwise(layout.weights):
        if len(shapes[before]) > 2 and len(shapes[name]) == 2:
            cells, rest = divmod(shapes[name][1], max(1, shapes[before][0]))
            placed = PlacedLayer(name, cells, span=-(-cells // MAX_POSITIONS))
            return placed if cells >= MIN_POSITIONS and not rest else None
    return None


def add_products(total: Tensor, block: Tensor) -> None:
    """Add the inner products of (n, w) rows to the upper triangle of (n, n) sums.

    They are computed in strips from the diagonal on: of many rows, three fifths of the whole matrix.
    """
    height = max(MIN_STRIP, -(-len(block) // STRIPS))
    for start in range(0, len(block), height):
        total[start : start + height, start:] += block[start : start + height] @ block[start:].T


def mirror_triangle(upper: Tensor) -> Tensor:
    """Return the symmetric (..., n, n) matrices with these upper triangles."""
    return upper.triu() + upper.triu(1).mT


def add_position_products(products: Tensor, block: Tensor, placed: PlacedLayer) -> None:
    """Add the inner products of a block of the placed layer's columns to those at their positions."""
    rows = block.view(len(block), -1, placed.cells).transpose(1, 2).contiguous()  # (n, cells, w)
    for total, cells in zip(products, torch.split(rows, placed.span, dim=1), strict=True):
        add_products(total, cells.flatten(1))


def add_up_positions(energy: Tensor, placed: PlacedLayer) -> Tensor:
    """Return the (n, positions) energies of positions, given the (n, fan-in) energies of the placed layer's inputs."""
    by_cell = energy.view(len(energy), -1, placed.cells).sum(1)
    return torch.stack([cells.sum(1) for cells in torch.split(by_cell, placed.span, dim=1)], 1)


def compare_at_positions(products: Tensor, lengths: Tensor) -> Tensor:
    """Return the (positions, n, n) inner products about the mean row, in units of the rows' lengths in the layer."""
    scaled = divide_or_zero(products, lengths[:, None] * lengths)
    return scaled - scaled.mean(1, keepdim=True) - scaled.mean(2, keepdim=True) + scaled.mean((1, 2), keepdim=True)


def add_energy(energy: Tensor, block: Tensor, start: int) -> None:
    """Add the squares of a block of a layer's columns to the energy of their inputs."""
    rows, inputs = energy.shape
    width = min(inputs, block.shape[1])
    parts = block.view(rows, -1, width).numpy()
    energy[:, start % inputs :][:, :width] += torch.from_numpy(np.einsum("now,now->nw", parts, parts))


def share_energy(energy: Tensor) -> Tensor:
    """Return the (n, fan-in) square roots of the shares of energy; a row of zeros has shares of zero."""
    total = energy.sum(1, keepdim=True)
    return (energy / total.where(total > 0, 1)).sqrt()


def compare_directions(layout: Layout, products: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    """Return the (n, n) centred cosines of rows in some layers; zeros for a single column, which only has a sign."""
    total = torch.stack([products[name] for name in names]).sum(0)
    columns = sum(layout.columns[name].stop - layout.columns[name].start for name in names)
    return centre_products(compute_cosines(total)) if columns > 1 else torch.zeros_like(total)


def measure_leans(sums: Tensor) -> Tensor | None:
    """Return the (n, classes) sums of the last layer's update per output about their mean, in unit rows.

    If features are not negative, as after a ReLU, the sum of an output's weights rises with the share of that class
    among a client's labels, and falls with how often the model already predicts it. None if there are too few classes.
    """
    if sums.shape[1] < MIN_CLASSES:
        return None
    about = sums - sums.mean(1, keepdim=True)
    length = about.norm(dim=1, keepdim=True)
    leans: Tensor = about / length.where(length > 0, 1)
    return leans


def find_leaning(leans: Tensor) -> Tensor:
    """Return an (n, classes) bool mask: which row leans to which class, more than to all classes evenly."""
    return leans.gt(leans.shape[1] ** -0.5)


@dataclass(eq=False)
class Moments:
    """The weights of each class, an output of the last layer, added up over its inputs.

    Everything but the sums is about the mean of a class's weights, since the mean says how far the class is raised, not
    on which features.

    Attributes:
        inputs: the number of weights per class.
        sums: (n, classes) sums of each row's weights.
        squares: (n, classes) their squares about their mean.
        products: (n, classes) their products with the model's.
        model_sums: (classes,) sums of the model's weights.
        model_squares: (classes,) their squares about their mean.
    """

    inputs: int
    sums: Tensor
    squares: Tensor
    products: Tensor
    model_sums: Tensor
    model_squares: Tensor

    @classmethod
    def start(cls, rows: int, classes: int, inputs: int) -> "Moments":
        """Return moments of nothing yet."""
        shapes = ((rows, classes), (rows, classes), (rows, classes), (classes,), (classes,))
        return cls(inputs, *(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def add(self, block: Tensor, model: Tensor | None, start: int) -> None:
        """Add a block of the last layer's columns, and overwrite it with its weights about their means."""
        width = min(self.inputs, block.shape[1])
        weights = block.view(len(block), -1, width)
        classes, before = slice(start // self.inputs, start // self.inputs + weights.shape[1]), start % self.inputs
        sums = weights.sum(2)
        weights -= (sums / width)[:, :, None]
        self.squares[:, classes] += torch.linalg.vector_norm(weights, dim=2).double().square()
        if model is not None:
            known = model.double().view(-1, width)
            known_sums = known.sum(1)
            about = known - known_sums[:, None] / width
            self.products[:, classes] += sum_products(weights, about)
            self.model_squares[classes] += about.square().sum(1)
        if before:
            share = before * width / (before + width)
            gap = sums / width - self.sums[:, classes] / before  # between the means of two parts of a class
            self.squares[:, classes] += share * gap.square()
            if model is not None:
                known_gap = known_sums / width - self.model_sums[classes] / before
                self.products[:, classes] += share * gap * known_gap
                self.model_squares[classes] += share * known_gap.square()
        self.sums[:, classes] += sums
        if model is not None:
            self.model_sums[classes] += known_sums

    @property
    def lengths(self) -> Tensor:
        """The (n, classes) lengths of the weights about their mean."""
        return measure_spread(self.squares, self.sums, self.inputs)

    def compare_with_model(self) -> Tensor:
        """Return the (n, classes) cosines with the model's weights per class."""
        model_lengths = measure_spread(self.model_squares, self.model_sums, self.inputs)
        return divide_or_zero(self.products, self.lengths * model_lengths)


def compare_looks(updates: Updates, leaning: Tensor, moments: Moments) -> Tensor:
    """Compare the weights with which rows raise a class with those of the others that raise it.

    The result are (n, classes) cosines of weights about their mean, on average over the others; NaN for rows that do
    not raise the class, or alone.
    """
    name, lengths, means = updates.layout.weights[-1], moments.lengths, moments.sums / moments.inputs
    told = leaning & (lengths > 0)
    alike = -told.double()  # without a row's cosine with itself
    for _, inside, block in read_blocks(updates, name):
        width = min(moments.inputs, block.shape[1])
        first, count = inside.start // moments.inputs, block.shape[1] // width
        rows, classes = told[:, first : first + count].nonzero(as_tuple=True)
        own = (rows, first + classes)
        weights = block.view(-1, width).index_select(0, rows * count + classes)
        weights = weights.sub_(means[own].to(block.dtype)[:, None]).div_(lengths[own].to(block.dtype)[:, None])
        total = torch.zeros(count, width, dtype=block.dtype).index_add_(0, classes, weights)
        alike[own] += (weights * total.index_select(0, classes)).sum(1)
    others = leaning.sum(0) - 1
    return (alike / others.clamp(min=1)).where(leaning & (others > 0), torch.nan)


def measure_spread(squares: Tensor, sums: Tensor, count: int) -> Tensor:
    """Return the lengths of `count` numbers each about their mean, from their squares about it; rounding is zero."""
    return squares.where(squares > ROUNDING * (squares + sums.square() / count), 0).sqrt()


def sum_products(weights: Tensor, others: Tensor) -> Tensor:
    """Return the (n, k) inner products of (n, k, w) weights with (k, w) others."""
    return torch.from_numpy(np.einsum("nkw,kw->nk", weights.numpy(), others.to(weights.dtype).numpy()))


def divide_or_zero(values: Tensor, lengths: Tensor) -> Tensor:
    """Return values divided by lengths, and zero where the length is zero."""
    return torch.where(lengths > 0, values / lengths.where(lengths > 0, 1), 0)
