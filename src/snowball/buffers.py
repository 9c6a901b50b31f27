"""What a model keeps beside its parameters, such as the running statistics and counters of a normalisation.

Buffers are trained by nobody and are no direction to vote on, so they stay out of the rows. After a round the elected
clients' are the global model's: floating ones as the mean by training examples, others as the maximum.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from snowball.updates import Updates

Buffers = dict[str, Tensor]
"""Buffers by name; empty for a model that has none."""


def saved(model: nn.Module) -> Buffers:
    """The model's own buffers, without those that are not part of its state."""
    state = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name in state}


def buffers_of(model: nn.Module) -> Buffers:
    """A copy of a model's buffers."""
    return {name: buffer.detach().cpu().clone() for name, buffer in saved(model).items()}


@torch.no_grad()
def load_buffers(model: nn.Module, buffers: Buffers) -> None:
    """Give a model these buffers, all that it has."""
    for name, buffer in saved(model).items():
        buffer.copy_(buffers[name])


def aggregate(replies: Sequence[Buffers], updates: Updates, elected: Tensor, before: Buffers) -> Buffers:
    """The global buffers after a round: what the elected make of theirs, or those of before where nobody is elected."""
    rows = [row for row in updates.order.tolist() if elected[row]]
    if not rows:
        return before
    share = updates.examples[rows] / updates.examples[rows].max()
    share = share / share.sum()
    return {name: merge(torch.stack([replies[row][name] for row in rows]), share) for name in before}


def merge(values: Tensor, share: Tensor) -> Tensor:
    """One buffer from several (n, ...), by their shares (n,) if they are floating."""
    if not values.is_floating_point():
        return values.amax(0)
    mean = share @ values.reshape(len(values), values[0].numel()).to(torch.float64)
    return mean.view(values.shape[1:]).to(values.dtype)
