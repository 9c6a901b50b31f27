"""Converts between models by name and the rows and buffers of a round on a server."""

from collections.abc import Sequence

import torch
from torch import Tensor

from snowball.guard.reply import ValidReply
from snowball.server import Received
from snowball.updates import Differences, Layout

Tensors = dict[str, Tensor]
"""A model's tensors by name, on the CPU."""


def convert_replies(base: Tensors, layout: Layout, replies: Sequence[ValidReply]) -> tuple[Tensor, Received]:
    """Return the global model as a row, and the replies as changes to it."""
    origin = layout.to_row({name: base[name] for name in layout.names})
    norms = torch.tensor([reply.norm for reply in replies], dtype=torch.float64)
    received = Received(
        values=Differences(origin, [reply.tensors for reply in replies], norms, layout),
        examples=torch.tensor([reply.examples for reply in replies], dtype=torch.float64),
        clients=tuple(reply.client for reply in replies),
        layout=layout,
        buffers=[select_buffers(reply.tensors, layout) for reply in replies],
    )
    return origin, received


def select_buffers(tensors: Tensors, layout: Layout) -> Tensors:
    """Return a model's tensors that are not part of its row."""
    return {name: tensor for name, tensor in tensors.items() if name not in layout.columns}
