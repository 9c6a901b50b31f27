"""Converts between models by name and the rows and buffers of a round on a server."""

from collections.abc import Sequence

import torch
from torch import Tensor

from snowball.differences import Differences
from snowball.guard.reply import ValidReply
from snowball.layout import Layout
from snowball.server import Received
from snowball.updates import Updates

MAX_SHARE, MAX_SHARE_RATIO = 0.5, 10.0
"""Largest share of an average that one client has by default: absolute, and as a multiple of an equal share."""

Tensors = dict[str, Tensor]
"""A model's tensors by name, on the CPU."""


def convert_replies(
    base: Tensors, layout: Layout, replies: Sequence[ValidReply], max_share: float | None = None
) -> Received:
    """Return the replies as changes to the global model."""
    norms = torch.tensor([reply.norm for reply in replies], dtype=torch.float64)
    return Received(
        values=Differences(base, [reply.tensors for reply in replies], norms, layout),
        examples=torch.tensor([reply.examples for reply in replies], dtype=torch.float64),
        clients=tuple(reply.client for reply in replies),
        layout=layout,
        buffers=[select_buffers(reply.tensors, layout) for reply in replies],
        max_share=choose_max_share(len(replies)) if max_share is None else max_share,
    )


def select_buffers(tensors: Tensors, layout: Layout) -> Tensors:
    """Return a model's tensors that are not part of its row."""
    return {name: tensor for name, tensor in tensors.items() if name not in layout.columns}


def choose_max_share(clients: int) -> float:
    """Return the default limit of one client's share: ten times an equal one, and at most half."""
    return min(MAX_SHARE, MAX_SHARE_RATIO / max(1, clients)) if clients > 1 else 1.0


def share_examples(updates: Updates, elected: Tensor) -> dict[str, float]:
    """Return the example counts of the elected clients, by id, with the same sum and no share above the limit."""
    counts = updates.normalise(updates.examples * elected) * float((updates.examples * elected).sum())
    return {client: count for client, count in zip(updates.clients, counts.tolist(), strict=True) if count > 0}
