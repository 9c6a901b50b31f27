"""The paper's network for texts: a bidirectional GRU over word vectors, two dense layers, no biases.

The paper does not say what the dense layers receive: here, as in the published code, the last state of each direction.
That code keeps torch's uniform initial weights for the GRU. The paper names Kaiming for all models, which is used here.

The GRU is torch's, but its recurrence is not: 25 tokens per text are hundreds of tiny operations, and recording them
for autograd takes most of the time. Here both directions run as one, with an explicit derivative, which is nearly three
times as fast.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu


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
        scores: Tensor = self.fc2(relu(self.fc1(compute_last_states(self.gru, inputs))))
        return scores


def compute_last_states(gru: nn.GRU, inputs: Tensor) -> Tensor:
    """Return the last states of both directions of a GRU of h channels, (n, 2h)."""
    rows, tokens, _ = inputs.shape
    onward, onward_recurrent, backward, backward_recurrent = gru.parameters()
    gates = (inputs @ torch.cat([onward, backward]).T).view(rows, tokens, 2, 3, gru.hidden_size)
    both = torch.stack([gates[:, :, 0], gates[:, :, 1].flip(1)], 3)  # (n, tokens, 3, 2, h)
    steps = both.transpose(0, 1).flatten(2)  # (tokens, n, 6h)
    ends: tuple[Tensor, ...] = Recurrence.apply(  # type: ignore[no-untyped-call]
        steps, join_directions(onward_recurrent, backward_recurrent)
    )
    return ends[0]


def join_directions(onward: Tensor, backward: Tensor) -> Tensor:
    """Join the recurrent weights (3h, h) of two directions into one (2h, 6h), side by side in every gate."""
    channels = onward.shape[1]
    apart = [pad(onward.view(3, channels, -1), (0, channels)), pad(backward.view(3, channels, -1), (channels, 0))]
    return torch.stack(apart, 1).flatten(0, 2).T


class Recurrence(torch.autograd.Function):
    """A GRU without biases, from the inputs' part of the gates (reset, update, candidate) and a state of zeros.

    It also runs several models at once: they add a dimension before the texts.
    """

    @staticmethod
    def forward(given: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Return the last state (n, h) for the inputs' part of the gates (tokens, n, 3h) and a weight (h, 3h).

        After it come the tensors for the derivative: all states, the gates, and the states' part of the gates.
        """
        channels, product = weight.shape[-2], torch.mm if weight.ndim == 2 else torch.bmm
        gates, recalled = given.clone(), torch.empty_like(given)
        states = given.new_zeros(len(given) + 1, *given.shape[1:-1], channels)
        opening, candidate = gates[..., : 2 * channels], gates[..., 2 * channels :]
        recalled_opening, recalled_candidate = recalled[..., : 2 * channels], recalled[..., 2 * channels :]
        reset, update = opening[..., :channels], opening[..., channels:]
        steps = (states, states[1:], recalled, recalled_opening, recalled_candidate, opening, reset, update, candidate)
        for before, after, both, to_opening, to_candidate, opened, forgets, stays, new in zip(*steps, strict=False):
            product(before, weight, out=both)
            opened.add_(to_opening).sigmoid_()
            new.addcmul_(forgets, to_candidate).tanh_()
            torch.lerp(new, before, stays, out=after)
        return states[-1].clone(), states, gates, recalled

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, ...]) -> None:
        """Save the tensors for the derivative."""
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:], inputs[1])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], given: Tensor, weight: Tensor) -> tuple[Any, tuple[int, ...]]:
        """Run several models at once."""
        gates, weights = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((given, weight), in_dims, strict=True)
        )
        return Recurrence.apply(gates.transpose(0, 1), weights), (0, 1, 1, 1)  # type: ignore[no-untyped-call]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the inputs' part of the gates and of the weight, given the last state's (n, h)."""
        states, gates, recalled, weight = ctx.saved_tensors
        reset, update, candidate = gates.chunk(3, -1)
        states = states[:-1]
        to_candidate = (1 - update) * (1 - candidate**2)
        to_reset = to_candidate * recalled.chunk(3, -1)[2] * reset * (1 - reset)
        to_update = (states - candidate) * update * (1 - update)
        factors = torch.stack([to_reset, to_update, to_candidate * reset], -2)  # (tokens, n, 3, h)
        turned, along = weight.mT.contiguous(), [gradient]
        plus_product = torch.addmm if weight.ndim == 2 else torch.baddbmm
        for factor, stays in zip(factors.flip(0), update.flip(0), strict=True):
            through = (factor * along[-1].unsqueeze(-2)).flatten(-2)  # (n, 3h)
            along.append(plus_product(stays * along[-1], through, turned))
        gradients = torch.stack(along[-2::-1])  # (tokens, n, h) of the state after each token
        through = (factors * gradients.unsqueeze(-2)).flatten(-2)  # (tokens, n, 3h)
        given = torch.cat([through[..., : 2 * weight.shape[-2]], to_candidate * gradients], -1)
        return given, flatten_steps(states).mT @ flatten_steps(through)


def flatten_steps(steps: Tensor) -> Tensor:
    """Flatten (tokens, n, h) to one row per token and text, (tokens * n, h)."""
    return steps.movedim(0, -3).flatten(-3, -2)
