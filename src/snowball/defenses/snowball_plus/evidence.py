"""The evidence for the ballots: one blockwise pass over the updates, then only small matrices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from snowball.defenses.ops import compute_cosines
from snowball.updates import BLOCK_ELEMENTS, Layout, Updates, centre_products

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
    """Gather the evidence of a round: read every column once, and the last layer once more, class by class."""
    layout, rows, hidden = updates.layout, len(updates), find_hidden_layers(updates.layout)
    placed = find_placed_layer(layout)
    at_positions = torch.zeros(placed.positions if placed else 0, rows, rows, dtype=torch.float64)
    directions = recalled.directions if recalled else {}
    products = {name: torch.zeros(rows, rows, dtype=torch.float64) for name in layout.weights}
    energy = {
        name: torch.zeros(rows, fan_in(layout, name), dtype=torch.float64)
        for name in {*hidden, *([placed.layer] if placed else [])}
    }
    sums = torch.zeros(rows, count_classes(layout), dtype=torch.float64)
    along_recalled = {name: torch.zeros(rows, dtype=torch.float64) for name in directions}
    along_base = torch.zeros(rows, dtype=torch.float64)
    for name in layout.names:
        here = placed if placed and name == placed.layer else None
        for columns, inside, block in read_blocks(updates, name, here.cells if here else 1):
            if base is not None:
                along_base += block @ base[columns].double()
            if here:
                add_position_products(at_positions, block, here)
            elif name in products:
                products[name].addmm_(block, block.T)
            if name in directions:
                along_recalled[name] += block @ directions[name][inside].double()
            if name == layout.weights[-1]:
                add_sums(sums, block, inside.start, fan_in(layout, name))
            if name in energy:
                add_energy(energy[name], block, inside.start)
    if placed:
        products[placed.layer] = at_positions.sum(0)
    lengths = updates.squared_norms.sqrt()
    views = {**{name: (name,) for name in layout.weights}, HIDDEN: hidden, ALL: layout.weights}
    shares = {name: share_energy(energy[name]) for name in hidden}
    if placed:
        shares[POSITIONS] = share_energy(add_up_positions(energy[placed.layer], placed))
    leans = measure_leans(sums)
    looks, fits = (None, None) if leans is None else compare_looks(updates, find_leaning(leans), base)
    layer_lengths = {name: each.diagonal().clamp(min=0).sqrt() for name, each in products.items()}
    return Evidence(
        lengths,
        layer_lengths,
        {view: compare_directions(layout, products, names) for view, names in views.items()},
        shares,
        compare_at_positions(at_positions, layer_lengths[placed.layer]) if placed else None,
        leans,
        looks,
        fits,
        measure_alignment(along_base, lengths, base),
        {name: divide_or_zero(along, layer_lengths[name]) for name, along in along_recalled.items()},
        {name: shares[name] @ each for name, each in (recalled.inputs if recalled else {}).items()},
    )


def read_blocks(updates: Updates, name: str, unit: int = 1) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield a layer in blocks of columns: their indices in the model and in the layer, and the (n, w) rows in float64.

    A block holds whole outputs, or a part of a single output that is too wide: a multiple of `unit`, which divides the
    number of inputs.
    """
    first, last = updates.layout.columns[name].start, updates.layout.columns[name].stop
    inputs = max(1, fan_in(updates.layout, name))
    most = max(1, BLOCK_ELEMENTS // len(updates) // unit) * unit
    width = most - most % inputs or inputs
    for output in range(first, last, width):
        end = min(output + width, last)
        for start in range(output, end, most):
            columns = slice(start, min(start + most, end))
            block = updates.read_columns(columns).double()
            yield columns, slice(columns.start - first, columns.stop - first), block


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


def add_position_products(products: Tensor, block: Tensor, placed: PlacedLayer) -> None:
    """Add the inner products of a block of the placed layer's columns to those at their positions."""
    rows = block.view(len(block), -1, placed.cells).transpose(1, 2).contiguous()  # products of strided rows are slow
    by_cell = rows.transpose(0, 1)  # (cells, n, w)
    if placed.span == 1:
        products.baddbmm_(by_cell, by_cell.transpose(1, 2))
        return
    for total, cells in zip(products, torch.split(by_cell, placed.span), strict=True):
        total += (cells @ cells.transpose(1, 2)).sum(0)


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
    if block.shape[1] < inputs:
        energy[:, start % inputs :][:, : block.shape[1]] += block.square()
    else:
        energy += block.view(rows, -1, inputs).square().sum(1)


def add_sums(sums: Tensor, block: Tensor, start: int, inputs: int) -> None:
    """Add the sums of a block of a layer's columns to the sums of their outputs."""
    parts = block.view(len(block), -1, min(inputs, block.shape[1])).sum(2)
    sums[:, start // inputs :][:, : parts.shape[1]] += parts


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


def read_classes(updates: Updates) -> Iterator[tuple[slice, slice]]:
    """Yield a few classes of the last weight layer at a time: their indices, and their columns in the model."""
    name, classes = updates.layout.weights[-1], count_classes(updates.layout)
    start, width = updates.layout.columns[name].start, max(1, fan_in(updates.layout, name))
    most = max(1, BLOCK_ELEMENTS // (len(updates) * width))
    for first in range(0, classes, most):
        last = min(first + most, classes)
        yield slice(first, last), slice(start + first * width, start + last * width)


def compare_looks(updates: Updates, leaning: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Compare the weights that raise each class with those of others that raise it, and with the model's.

    Both results are (n, classes) cosines of weights about their mean, since the mean says how far the class is raised,
    not on which features. The first are means over the others, and NaN for rows that do not raise the class; the second
    are None without a model.
    """
    looks = torch.full(leaning.shape, torch.nan, dtype=torch.float64)
    fits = None if base is None else torch.zeros_like(looks)
    for classes, columns in read_classes(updates):
        inside = leaning[:, classes].T  # (classes, n)
        rows = updates.read_columns(columns).double()
        weights = rows.view(len(rows), len(inside), -1).transpose(0, 1)  # (classes, n, inputs)
        lengths = measure_spread(weights)
        raised = torch.where(inside & (lengths > 0), 1 / lengths.where(lengths > 0, 1), 0)
        total = centre_rows(raised[:, None] @ weights)[:, 0]  # (classes, inputs) the sum of unit weights
        others = inside.sum(1, keepdim=True) - 1
        alike = divide_or_zero(multiply_rows(weights, total), lengths) - (lengths > 0).double()
        looks[:, classes] = (alike / others.clamp(min=1)).where(inside & (others > 0), torch.nan).T
        if base is not None and fits is not None:
            model = centre_rows(base[columns].double().view(len(inside), -1))
            along = multiply_rows(weights, divide_or_zero(model, model.norm(dim=1, keepdim=True)))
            fits[:, classes] = divide_or_zero(along, lengths).T
    return looks, fits


def centre_rows(rows: Tensor) -> Tensor:
    """Return (..., w) rows minus their means."""
    return rows - rows.mean(-1, keepdim=True)


def measure_spread(rows: Tensor) -> Tensor:
    """Return the (...,) lengths of (..., w) rows about their means, without copying them; rounding counts as zero."""
    squares, means = rows.square().sum(-1), rows.mean(-1)
    rest = squares - rows.shape[-1] * means.square()
    return rest.where(rest > ROUNDING * squares, 0).sqrt()


def multiply_rows(rows: Tensor, others: Tensor) -> Tensor:
    """Return the (k, n) inner products of (k, n, w) rows with (k, w) others."""
    return (rows @ others[:, :, None])[:, :, 0]


def measure_alignment(along: Tensor, lengths: Tensor, base: Tensor | None) -> Tensor | None:
    """Return minus the (n,) cosines with the global model; None if there is no model, or it is zero."""
    if base is None or not base.any():
        return None
    return -divide_or_zero(along, lengths * base.double().norm())


def divide_or_zero(values: Tensor, lengths: Tensor) -> Tensor:
    """Return values divided by lengths, and zero where the length is zero."""
    return torch.where(lengths > 0, values / lengths.where(lengths > 0, 1), 0)
