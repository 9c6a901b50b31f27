"""Buffers: the tensors of a model besides its parameters, such as a normalisation's running statistics and counters.

Buffers are not trained and are not a direction to vote on, so they stay out of the rows. After a round, the global
model takes those of the elected clients: floating-point buffers as the mean by training examples, others as the
maximum.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Buffers = dict[str, Tensor]
"""Buffers by name; empty for a model without buffers."""


def select_buffers(model: nn.Module) -> Buffers:
    """Return the model's own buffers that are part of its state."""
    state = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name in state}


def copy_buffers(model: nn.Module) -> Buffers:
    """Return a copy of a model's buffers."""
    return {name: buffer.detach().cpu().clone() for name, buffer in select_buffers(model).items()}


@torch.no_grad()
def load_buffers(model: nn.Module, buffers: Buffers) -> None:
    """Set all buffers of a model."""
    for name, buffer in select_buffers(model).items():
        buffer.copy_(buffers[name])


def merge_buffers(replies: Sequence[Buffers], examples: Tensor) -> Buffers:
    """Merge the buffers of several clients, floating-point ones by the clients' (n,) training examples."""
    share = examples.double() / examples.max()  # first, or the sum of huge counts could overflow
    share = share / share.sum()
    return {name: merge_buffer(torch.stack([reply[name] for reply in replies]), share) for name in replies[0]}


def merge_buffer(values: Tensor, share: Tensor) -> Tensor:
    """Merge (n, ...) values of one buffer: the mean with (n,) shares if they are floating-point, else the maximum."""
    if not values.is_floating_point():
        return values.amax(0)
    mean = share @ values.reshape(len(values), values[0].numel()).to(torch.float64)
    return mean.view(values.shape[1:]).to(values.dtype)
