"""Optimiser steps of Snowball's VAE: gradients by hand, and Adam block by block.

At batches of eight, autograd takes longer than the arithmetic, and what remains mostly moves memory: the weights of the
first and the last layer and Adam's averages of them do not fit a core's cache. So these are updated in blocks of rows.
The gradient of a block exists only until Adam has used it, and the block is multiplied while it is in the cache.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adam import adam

BLOCK_ELEMENTS = 1 << 19
"""The most weights in a block: 2 MiB. Smaller blocks spend more time between operations."""

ROW_MULTIPLE = 16
"""Blocks have a multiple of this many rows, so that no group of numbers that a processor handles at once is cut."""

FEW_ROWS = 4
"""Products of fewer rows are rounded depending on the order of a weight in memory: these use the usual order."""


class Affine(nn.Module):
    """A linear layer with Kaiming weights from the given stream and zero biases.

    Weights that belong to the same output are side by side in memory, or with `by_input` those of the same input.
    """

    def __init__(
        self, inputs: int, outputs: int, rng: torch.Generator, device: str = "cpu", by_input: bool = False
    ) -> None:
        super().__init__()
        drawn = nn.init.kaiming_normal_(torch.empty(outputs, inputs), nonlinearity="relu", generator=rng).to(device)
        self.weight = nn.Parameter(drawn.T.contiguous().T if by_input else drawn)
        self.bias = nn.Parameter(torch.zeros(outputs, device=device))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's outputs."""
        return functional.linear(inputs, self.order_weight(len(inputs)), self.bias)

    def order_weight(self, rows: int) -> Tensor:
        """Return the weight for a product of this many rows, which does not depend on how the weight is stored."""
        return self.weight if rows >= FEW_ROWS else self.weight.contiguous()


class Layers(NamedTuple):
    """The layers of the VAE: `enter` and `leave` are as wide as its inputs; weights of `leave` are stored by input."""

    enter: Affine
    encode: Affine
    code: Affine
    decode: Affine
    widen: Affine
    leave: Affine


@dataclass(eq=False)
class Part:
    """A parameter or some rows of one, with Adam's averages of its gradient."""

    values: Tensor
    rows: slice = field(default_factory=lambda: slice(None))

    def __post_init__(self) -> None:
        """Start at no steps."""
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = torch.zeros((), device=self.values.device)


class Learning:
    """A training by Adam; the loss is the summed squared error, plus the summed divergence of the code from a normal.

    All that reads or writes the last layer goes through an executor that does one thing after the other. With a thread
    of its own, the last layer is updated while this thread learns the others, and stays in its core's cache. The first
    layer is updated at the start of the next step, when its blocks are needed anyway, or in `finish`.
    """

    def __init__(self, layers: Layers, lr: float, bounded: bool, executor: Executor) -> None:
        self.layers, self.lr, self.bounded, self.executor = layers, lr, bounded, executor
        self.enter = WideLayer(layers.enter.weight.detach(), lr)
        self.leave = WideLayer(layers.leave.weight.detach().T, lr)
        small = (layers.encode, layers.code, layers.decode, layers.widen)
        self.parts = {layer: [Part(layer.weight.detach()), Part(layer.bias.detach())] for layer in small}
        self.biases = Part(layers.enter.bias.detach()), Part(layers.leave.bias.detach())
        self.changes: list[tuple[Part, Tensor]] = []
        self.before: tuple[Tensor, Tensor] | None = None  # the inputs and gradient that `enter` has yet to learn
        self.updated: Future[None] | None = None

    def take_step(self, inputs: Tensor, noise: Tensor) -> None:
        """Learn from a batch, with the noise of its code."""
        layers = self.layers
        entered = self._enter(inputs).relu_()
        encoded = layers.encode(entered).relu_()
        mean, raw = layers.code(encoded).chunk(2, 1)
        log_variance = functional.softplus(raw)
        deviation = (0.5 * log_variance).exp_()
        code = torch.addcmul(mean, deviation, noise)
        decoded = layers.decode(code).relu_()
        widened = layers.widen(decoded).relu_()

        outer, inner = self.executor.submit(self._leave, inputs, widened).result()
        self.updated = self.executor.submit(self._update_leave, widened, outer)
        outer = inner.mul_(widened > 0)
        outer = self._pass_back(layers.widen, decoded, outer).mul_(decoded > 0)
        outer = self._pass_back(layers.decode, code, outer)
        to_variance = 0.5 * (outer * noise * deviation + log_variance.exp() - 1) * raw.sigmoid()
        outer = torch.cat([outer + mean, to_variance], 1)
        outer = self._pass_back(layers.code, encoded, outer).mul_(encoded > 0)
        outer = self._pass_back(layers.encode, entered, outer).mul_(entered > 0)
        self.before = inputs, outer
        take_adam_step([*self.changes, (self.biases[0], outer.sum(0))], self.lr)
        self.changes.clear()

    def finish(self) -> None:
        """Update the first layer after the last step, and wait until the last layer is updated."""
        if self.before and self.updated:
            self.enter.update(self.before[1], self.before[0])
            self.updated.result()

    def _enter(self, inputs: Tensor) -> Tensor:
        """Update the first layer, if it has something to learn, and return its outputs."""
        bias = self.layers.enter.bias.detach()
        entered = inputs.new_empty(len(inputs), len(bias))
        for block in self.enter.blocks:
            if self.before:
                self.enter.update_block(block, self.before[1], self.before[0])
            torch.addmm(bias[block.rows], inputs, block.values.T, out=entered[:, block.rows])
        return entered

    @torch.no_grad()
    def _leave(self, inputs: Tensor, widened: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the last layer's outputs and of its inputs."""
        outputs = self.layers.leave(widened)
        if self.bounded:
            outputs = outputs.sigmoid_()
        outer = 2 * (outputs - inputs)
        if self.bounded:
            outer.mul_(outputs).mul_(1 - outputs)
        return outer, outer @ self.layers.leave.order_weight(len(outer))

    @torch.no_grad()
    def _update_leave(self, widened: Tensor, outer: Tensor) -> None:
        self.leave.update(widened, outer)
        take_adam_step([(self.biases[1], outer.sum(0))], self.lr)

    def _pass_back(self, layer: Affine, inputs: Tensor, outer: Tensor) -> Tensor:
        """Compute the gradients of a layer, and return that of its inputs."""
        self.changes.extend(zip(self.parts[layer], (outer.T @ inputs, outer.sum(0)), strict=True))
        return outer @ layer.weight


class WideLayer:
    """The weights of a wide layer in blocks of rows, which share the memory of their gradients."""

    def __init__(self, matrix: Tensor, lr: float) -> None:
        self.blocks, self.lr = split_rows(matrix), lr
        self.memory = torch.empty_like(self.blocks[0].values)  # the first block is the largest

    def update(self, left: Tensor, right: Tensor) -> None:
        """Update all blocks, given two factors (n, rows) and (n, columns) of the gradient."""
        for block in self.blocks:
            self.update_block(block, left, right)

    def update_block(self, block: Part, left: Tensor, right: Tensor) -> None:
        """Update a block, given the factors of the whole gradient."""
        gradient = self.memory[: len(block.values)]
        torch.mm(left[:, block.rows].T, right, out=gradient)
        take_adam_step([(block, gradient)], self.lr)


def split_rows(matrix: Tensor) -> list[Part]:
    """Split a matrix into blocks of rows."""
    count = ceil(matrix.numel() / BLOCK_ELEMENTS)
    size = ceil(len(matrix) / count / ROW_MULTIPLE) * ROW_MULTIPLE
    slices = [slice(start, min(start + size, len(matrix))) for start in range(0, len(matrix), size)]
    return [Part(matrix[rows], rows) for rows in slices]


def take_adam_step(changes: Sequence[tuple[Part, Tensor]], lr: float) -> None:
    """Take a step with parts and their gradients."""
    parts, gradients = zip(*changes, strict=True)
    adam(
        [part.values for part in parts],
        list(gradients),
        [part.mean for part in parts],
        [part.square for part in parts],
        [],
        [part.steps for part in parts],
        fused=True,
        lr=lr,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )
