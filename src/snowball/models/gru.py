"""The paper's network for texts: a bidirectional GRU over word vectors, two dense layers, no biases.

The paper leaves open what the dense layers see: as in the published code, the last state of each direction. That code
leaves the GRU's own weights as torch draws them, uniform; the paper says Kaiming of all models, and so it is here.

The GRU is torch's, its recurrence is not: 25 tokens a text are hundreds of tiny operations, most of whose time is spent
in recording them. Both directions run as one here, and the derivative is written out: nearly three times as fast.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu


class Gru(nn.Module):
    """Bidirectional GRU - dense - dense, with ReLU between."""

    def __init__(self, widths: tuple[int, int], input_shape: tuple[int, int], classes: int) -> None:
        super().__init__()
        channels, hidden = widths
        _, width = input_shape
        self.gru = nn.GRU(width, channels, bias=False, batch_first=True, bidirectional=True)
        self.fc1 = nn.Linear(2 * channels, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores (n, classes) of texts as word vectors (n, tokens, width)."""
        scores: Tensor = self.fc2(relu(self.fc1(last_states(self.gru, inputs))))
        return scores


def last_states(gru: nn.GRU, inputs: Tensor) -> Tensor:
    """(n, 2h) where both directions of a GRU of h channels end."""
    rows, tokens, _ = inputs.shape
    onward, onward_recurrent, backward, backward_recurrent = gru.parameters()
    gates = (inputs @ torch.cat([onward, backward]).T).view(rows, tokens, 2, 3, gru.hidden_size)
    both = torch.stack([gates[:, :, 0], gates[:, :, 1].flip(1)], 3)  # (n, tokens, 3, 2, h)
    steps = both.transpose(0, 1).flatten(2)  # (tokens, n, 6h)
    end: Tensor = Recurrence.apply(steps, joined(onward_recurrent, backward_recurrent))  # type: ignore[no-untyped-call]
    return end


def joined(onward: Tensor, backward: Tensor) -> Tensor:
    """(2h, 6h) what two directions' recurrent weights (3h, h) are as one's, side by side in every gate."""
    channels = onward.shape[1]
    apart = [pad(onward.view(3, channels, -1), (0, channels)), pad(backward.view(3, channels, -1), (channels, 0))]
    return torch.stack(apart, 1).flatten(0, 2).T


class Recurrence(torch.autograd.Function):
    """A GRU without biases, from what its inputs give the gates (reset, update, candidate) and a state of zeros."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor) -> Tensor:
        """The last state (n, h) of what the gates are given (tokens, n, 3h), with a recurrent weight (h, 3h)."""
        channels = len(weight)
        gates, recalled = given.clone(), torch.empty_like(given)
        states = given.new_zeros(len(given) + 1, given.shape[1], channels)
        opening, candidate = gates[..., : 2 * channels], gates[..., 2 * channels :]
        recalled_opening, recalled_candidate = recalled[..., : 2 * channels], recalled[..., 2 * channels :]
        reset, update = opening[..., :channels], opening[..., channels:]
        steps = (states, states[1:], recalled, recalled_opening, recalled_candidate, opening, reset, update, candidate)
        for before, after, both, to_opening, to_candidate, opened, forgets, stays, new in zip(*steps, strict=False):
            torch.mm(before, weight, out=both)
            opened.add_(to_opening).sigmoid_()
            new.addcmul_(forgets, to_candidate).tanh_()
            torch.lerp(new, before, stays, out=after)
        ctx.save_for_backward(states[:-1], reset, update, candidate, recalled_candidate, weight)
        return states[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of what the gates are given and of the weight, from the last state's (n, h)."""
        states, reset, update, candidate, recalled, weight = ctx.saved_tensors
        to_candidate = (1 - update) * (1 - candidate**2)
        to_reset = to_candidate * recalled * reset * (1 - reset)
        to_update = (states - candidate) * update * (1 - update)
        factors = torch.stack([to_reset, to_update, to_candidate * reset], 2)  # (tokens, n, 3, h)
        turned, along = weight.T.contiguous(), [gradient]
        for factor, stays in zip(factors.flip(0), update.flip(0), strict=True):
            through = (factor * along[-1][:, None]).flatten(1)  # (n, 3h)
            along.append(torch.addmm(stays * along[-1], through, turned))
        gradients = torch.stack(along[-2::-1])  # (tokens, n, h) of the state after each token
        through = (factors * gradients[:, :, None]).flatten(2)  # (tokens, n, 3h)
        given = torch.cat([through[..., : 2 * len(weight)], to_candidate * gradients], 2)
        return given, states.flatten(0, 1).T @ through.flatten(0, 1)
