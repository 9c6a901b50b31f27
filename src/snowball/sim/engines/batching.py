"""Batches of clients that are trained at the same time: clients whose batches have the same size take a step together.

Short batches are not padded and masked instead, because batch normalisation would see the padding.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class StackedSamples(NamedTuple):
    """Training samples of several clients, one client after the other.

    Attributes:
        inputs: (N, ...) normalised inputs.
        labels: (N,).
        counts: how many of the samples belong to each client.
        rngs: the generator that shuffles each client's samples.
    """

    inputs: Tensor
    labels: Tensor
    counts: list[int]
    rngs: list[torch.Generator]

    def shuffle(self) -> Tensor:
        """Draw a new order of each client's samples: (n, most) indices, padded with zeros for smaller clients."""
        starts = [0, *accumulate(self.counts)]
        drawn = [torch.randperm(count, generator=rng) for count, rng in zip(self.counts, self.rngs, strict=True)]
        orders = [order + start for order, start in zip(drawn, starts, strict=False)]
        return pad_sequence(orders, batch_first=True).to(self.labels.device)


class BatchGroup(NamedTuple):
    """One SGD step that several clients take together.

    Attributes:
        size: samples per client.
        members: the clients.
        starts: where each client's batch starts in its order.
    """

    size: int
    members: list[int]
    starts: list[int]

    def gather(self, orders: Tensor) -> Tensor:
        """Return the indices of the samples (members, size), given the order of each client's samples."""
        members, starts = torch.tensor([self.members, self.starts], device=orders.device)
        return orders[members[:, None], starts[:, None] + torch.arange(self.size, device=orders.device)]


def group_batches(sizes: Sequence[Sequence[int]], batch: int) -> list[BatchGroup]:
    """Group one epoch of batches, given their sizes per client: full batches by number, then the last ones by size."""
    groups: dict[tuple[bool, int, int], list[tuple[int, int]]] = defaultdict(list)
    for client, client_sizes in enumerate(sizes):
        for number, size in enumerate(client_sizes):
            full = size == batch
            groups[not full, number if full else 0, size].append((client, number * batch))
    return [
        BatchGroup(size, [client for client, _ in group], [start for _, start in group])
        for (_, _, size), group in sorted(groups.items())
    ]
