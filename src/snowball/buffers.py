"""The tensors that a model keeps besides its parameters: running statistics and counters of a normalisation.

Buffers are trained by nobody and are no direction to vote on, so they stay out of the rows. After a round the elected
clients' are the global model's: floating ones as the mean by training examples, others as the maximum.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Buffers = dict[str, Tensor]
"""Buffers by name; empty for a model that has none."""


def select_buffers(model: nn.Module) -> Buffers:
    """The model's own buffers, without those that are not part of its state."""
    state = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name in state}


def copy_buffers(model: nn.Module) -> Buffers:
    """A copy of a model's buffers."""
    return {name: buffer.detach().cpu().clone() for name, buffer in select_buffers(model).items()}


@torch.no_grad()
def load_buffers(model: nn.Module, buffers: Buffers) -> None:
    """Give a model these buffers, all that it has."""
    for name, buffer in select_buffers(model).items():
        buffer.copy_(buffers[name])


def merge_buffers(replies: Sequence[Buffers], examples: Tensor) -> Buffers:
    """Merge the buffers of some clients, floating ones by their (n,) training examples."""
    share = examples.double() / examples.max()  # first, so that no sum of huge counts overflows
    share = share / share.sum()
    return {name: merge_buffer(torch.stack([reply[name] for reply in replies]), share) for name in replies[0]}


def merge_buffer(values: Tensor, share: Tensor) -> Tensor:
    """Return one buffer for several (n, ...): their mean with (n,) shares if they are floating, else the maximum."""
    if not values.is_floating_point():
        return values.amax(0)
    mean = share @ values.reshape(len(values), values[0].numel()).to(torch.float64)
    return mean.view(values.shape[1:]).to(values.dtype)
