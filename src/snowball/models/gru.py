"""The paper's network for texts: a bidirectional GRU over word vectors, two dense layers, no biases.

The paper does not say what the dense layers receive: here, as in the published code, the last state of each direction.
That code keeps torch's uniform initial weights for the GRU. The paper names Kaiming for all models, which is used here.

The parameters are those of torch.nn.GRU, but torch does not run them: see `snowball.models.gru_layer`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import relu

from snowball.models.gru_layer import GRULayer, GRUWeights

MAX_LAYERS = 16
"""Shapes of batches whose buffers `GRUGradients` keeps; eight clients with ten texts of 25 words take 4 MB."""


class TextGRU(nn.Module):
    """Bidirectional GRU - dense - dense, with ReLU between."""

    def __init__(self, widths: tuple[int, int], input_shape: tuple[int, int], classes: int) -> None:
        super().__init__()
        channels, hidden = widths
        _, width = input_shape
        self.gru = nn.GRU(width, channels, bias=False, batch_first=True, bidirectional=True)
        self.fc1 = nn.Linear(2 * channels, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of texts as word vectors (n, tokens, width)."""
        ends: Tensor = LastStates.apply(inputs, *self.gru.parameters())  # type: ignore[no-untyped-call]
        scores: Tensor = self.fc2(relu(self.fc1(ends)))
        return scores


class LastStates(torch.autograd.Function):
    """The last states of both directions of a GRU (n, 2h), for texts (n, tokens, width) and the GRU's weights."""

    @staticmethod
    def forward(ctx: Any, texts: Tensor, *weights: Tensor) -> Tensor:
        """Run the layer."""
        channels = weights[0].shape[0] // 3
        ctx.shapes = [(1, *weight.shape) for weight in weights]
        ctx.layer = GRULayer(torch.Size((1, *texts.shape)), channels, texts.dtype, texts.device)
        ctx.save_for_backward(*ctx.layer.buffers)  # which tells torch what this model holds for its derivative
        ends: Tensor = ctx.layer.run(texts.unsqueeze(0), stack_one(weights))[0]
        return ends.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the texts, if they are needed, and of the weights."""
        into = GRUWeights(*map(gradient.new_empty, ctx.shapes))
        ctx.layer.backpropagate(gradient.unsqueeze(0), into)
        texts = ctx.layer.compute_texts_gradient()[0] if ctx.needs_input_grad[0] else None
        return texts, *(weight[0] for weight in into)


def stack_one(weights: Sequence[Tensor]) -> GRUWeights:
    """View the weights of one model as those of a stack."""
    return GRUWeights(*(weight.unsqueeze(0) for weight in weights))


class GRUGradients:
    """Gradients of several `TextGRU` at once; rounding included, those of a model do not depend on the others."""

    def __init__(self) -> None:
        self.find_layer = lru_cache(MAX_LAYERS)(GRULayer)

    @torch.no_grad()
    def __call__(self, weights: Sequence[Tensor], inputs: Tensor, labels: Tensor, into: Sequence[Tensor]) -> None:
        """Write the gradients of each model's mean cross-entropy: inputs are (g, n, tokens, width), labels (g, n)."""
        *recurrent, hidden, last = weights
        layer = self.find_layer(inputs.shape, hidden.shape[-1] // 2, inputs.dtype, inputs.device)
        ends = layer.run(inputs, GRUWeights(*recurrent))
        features = torch.bmm(ends, hidden.mT).relu_()  # (g, n, hidden)
        errors = torch.bmm(features, last.mT).softmax(-1)  # (g, n, classes)
        ones = errors.new_ones(*labels.shape, 1)
        errors.scatter_add_(-1, labels.unsqueeze(-1), -ones).div_(labels.shape[1])
        changes = torch.bmm(errors, last).mul_(features > 0)
        into[-1].copy_(torch.bmm(errors.mT, features))
        into[-2].copy_(torch.bmm(changes.mT, ends))
        layer.backpropagate(torch.bmm(changes, hidden), GRUWeights(*into[:-2]))
