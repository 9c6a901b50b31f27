"""A bidirectional GRU layer of several models at once: forward and backward pass, in buffers that are used again.

A step of a GRU computes little, and a text has 25. Calling the operations takes most of the time, so here each call
serves both directions of all models. The words' part of all gates is one product per model, and so is each gradient of
the weights. A model's numbers do not depend on the models beside it, to the last bit. For that, products are batched
and their operands aligned, and sigmoids, which torch rounds differently at the end of a tensor, run over slices.

Shapes: g models, n texts, t words, h channels per direction, c = 2h. *recalled* is the state's part of the candidate.
"""

from collections.abc import Callable
from functools import cached_property, partial
from math import ceil, prod
from typing import NamedTuple

import torch
from torch import Tensor

RESET, UPDATE, RECALLED, CANDIDATE = range(4)
"""The order of the sums in a step. The state enters the first three, the words all but *recalled*."""

ALIGNMENT = 16
"""Numbers in 64 bytes, in float32."""


class GRUWeights(NamedTuple):
    """The weights of the layer, or their gradients, as torch.nn.GRU has them: (g, 3h, width) and (g, 3h, h)."""

    onward: Tensor
    onward_recurrent: Tensor
    backward: Tensor
    backward_recurrent: Tensor


class GRULayer:
    """Buffers for texts of one shape (g, n, t, width), and the two passes over them.

    The backward pass belongs to the forward pass before it.
    """

    def __init__(self, shape: torch.Size, channels: int, dtype: torch.dtype, device: torch.device) -> None:
        models, rows, words, width = shape
        self.channels, self.flat = channels, (models, words * rows, -1)
        make = partial(torch.empty, dtype=dtype, device=device)
        zeros = partial(torch.zeros, dtype=dtype, device=device)
        both, steps = 2 * channels, (words, models, rows)
        self.words = align_models(make, (models, words, rows, width))
        self.weight = align_models(make, (models, 3, 2, channels, width))
        self.recurrent = zeros(models, 2, channels, 3, 2, channels)  # no weight leads from one direction to the other
        self.by_word = zeros(models * words * rows * 6 + 1, channels)  # the last row stays zero
        self.states = zeros(models, words + 1, rows, both)
        self.gates = make(*steps, 3 * both)
        self.candidate = make(*steps, both)
        self.changes = make(models, words, rows, 4, both)
        self.along = make(words + 1, models, rows, both)
        self.orders = WordOrders(models, rows, words, device)

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """All that grows with the texts."""
        return (self.words, self.by_word, self.states, self.gates, self.candidate, self.changes, self.along)

    @cached_property
    def forward_steps(self) -> list[tuple[Tensor, ...]]:
        """The views of each step: the states before and after, all gates, single ones, and the candidate."""
        states = self.states.unbind(1)
        reset, update, recalled = self.gates.chunk(3, -1)
        parts = (self.gates, self.gates[..., : 4 * self.channels], reset, update, recalled, self.candidate)
        return list(zip(states[:-1], states[1:], *(part.unbind() for part in parts), strict=True))

    @cached_property
    def backward_steps(self) -> list[tuple[Tensor, ...]]:
        """The views of each step, the last first: gradients after and before, changes, and the update gate."""
        changes = self.changes.transpose(0, 1)
        after, before = self.along[1:].unsqueeze(3), self.along[:-1]
        recalling = changes.flatten(3)[..., : 6 * self.channels]
        parts = (self.along[1:], after, before, changes, recalling, self.gates.chunk(3, -1)[UPDATE])
        return list(zip(*(part.unbind()[::-1] for part in parts), strict=True))

    def run(self, texts: Tensor, weights: GRUWeights) -> Tensor:
        """Return the last states of both directions (g, n, c), in a buffer that the next call overwrites."""
        self.words.copy_(texts.transpose(1, 2))
        self._join(weights)
        torch.bmm(self.words.view(self.flat), self.weight.flatten(1, 3).mT, out=self.by_word[:-1].view(self.flat))
        torch.index_select(self.by_word, 0, self.orders.gates, out=self.gates.view(-1, self.channels))
        torch.index_select(self.by_word, 0, self.orders.candidate, out=self.candidate.view(-1, self.channels))
        recurrent = self.recurrent.flatten(3).flatten(1, 2)  # (g, c, 3c)
        for before, after, gates, opened, reset, update, recalled, candidate in self.forward_steps:
            gates.baddbmm_(before, recurrent)
            opened.sigmoid_()
            candidate.addcmul_(reset, recalled).tanh_()
            torch.lerp(candidate, before, update, out=after)
        return self.states[:, -1]

    def backpropagate(self, gradient: Tensor, into: GRUWeights) -> None:
        """Write the gradients of the weights, given that of the last states (g, n, c)."""
        self._derive_gates()
        self.along[-1] = gradient
        recurrent = self.recurrent.flatten(3).flatten(1, 2).mT  # (g, 3c, c)
        for after, spread, before, changes, recalling, update in self.backward_steps:
            changes.mul_(spread)
            torch.mul(after, update, out=before)
            before.baddbmm_(recalling, recurrent)
        self._write_gradients(into)

    def compute_texts_gradient(self) -> Tensor:
        """Return the gradient of the texts (g, n, t, width) after a backward pass."""
        gradient = torch.bmm(self.by_word[:-1].view(self.flat), self.weight.flatten(1, 3))
        return gradient.view(self.words.shape).transpose(1, 2)

    def _join(self, weights: GRUWeights) -> None:
        """Put the weights of both directions side by side in every gate."""
        for direction, (onto_words, onto_state) in enumerate((weights[:2], weights[2:])):
            self.weight[:, :, direction] = split_gates(onto_words)
            recurrent = self.recurrent[:, direction, :, :, direction]  # (g, from, gate, to)
            recurrent.permute(0, 2, 3, 1).copy_(split_gates(onto_state))

    def _derive_gates(self) -> None:
        """Compute the derivatives of each step's state by the sums in its gates."""
        reset, update, recalled = self.gates.transpose(0, 1).chunk(3, -1)
        candidate = self.candidate.transpose(0, 1)
        by = self.changes.unbind(3)
        torch.mul(candidate, candidate, out=by[CANDIDATE]).neg_().add_(1)
        by[CANDIDATE].addcmul_(by[CANDIDATE], update, value=-1)  # (1 - candidate^2) (1 - update)
        torch.mul(by[CANDIDATE], reset, out=by[RECALLED])
        torch.mul(by[RECALLED], recalled, out=by[RESET])
        by[RESET].addcmul_(by[RESET], reset, value=-1)
        torch.sub(self.states[:, :-1], candidate, out=by[UPDATE]).mul_(update)
        by[UPDATE].addcmul_(by[UPDATE], update, value=-1)

    def _write_gradients(self, into: GRUWeights) -> None:
        changes = self.changes.view(-1, self.channels)
        torch.index_select(changes, 0, self.orders.changes, out=self.by_word[:-1])
        by_weight = torch.bmm(self.by_word[:-1].view(self.flat).mT, self.words.view(self.flat)).view(self.weight.shape)
        states = self.states[:, :-1].reshape(self.flat)
        recalling = self.changes.view(self.flat)[..., : 6 * self.channels]
        by_recurrent = torch.bmm(states.mT, recalling).view(self.recurrent.shape)
        for direction, (onto_words, onto_state) in enumerate((into[:2], into[2:])):
            split_gates(onto_words).copy_(by_weight[:, :, direction])
            split_gates(onto_state).copy_(by_recurrent[:, direction, :, :, direction].permute(0, 2, 3, 1))


class WordOrders:
    """Row numbers that translate between the order of the words and that of the steps.

    The backward direction steps from the last word to the first. A row has the channels of a gate and a direction.

    Attributes:
        gates: the rows of the words' part for the gates (t, g, n, 3, 2) of the steps; for *recalled* the row of zeros.
        candidate: the rows for the candidates (t, g, n, 2) of the steps.
        changes: the rows of the changes (g, t, n, 4, 2) for the words' part (g, t, n, 3, 2).
    """

    def __init__(self, models: int, rows: int, words: int, device: torch.device) -> None:
        count = models * words * rows
        by_word = turn_back(torch.arange(count * 6).view(models, words, rows, 3, 2)).transpose(0, 1)
        zeros = torch.full_like(by_word[..., :1, :], count * 6)
        self.gates = torch.cat([by_word[..., :2, :], zeros], 3).flatten().to(device)
        self.candidate = by_word[..., 2, :].flatten().to(device)
        changes = torch.arange(count * 8).view(models, words, rows, 4, 2)[..., [RESET, UPDATE, CANDIDATE], :]
        self.changes = turn_back(changes).flatten().to(device)


def align_models(make: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
    """Make a tensor (g, ...) in which models start at multiples of 64 bytes: rounding in products depends on that."""
    models, size = shape[0], prod(shape[1:])
    return make(models, ceil(size / ALIGNMENT) * ALIGNMENT)[:, :size].view(shape)


def turn_back(rows: Tensor) -> Tensor:
    """Turn the backward direction of (g, t, n, gates, 2) round in time."""
    return torch.stack([rows[..., 0], rows[..., 1].flip(1)], -1)


def split_gates(weight: Tensor) -> Tensor:
    """View the weights (g, 3h, ...) of a direction gate by gate, (g, 3, h, ...)."""
    return weight.view(len(weight), 3, weight.shape[1] // 3, -1)
