"""Who steps together when several clients are trained at once: those whose batches have the same size.

Short batches are not padded and masked instead, since batch normalisation would see the padding.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class Tasks(NamedTuple):
    """What some clients train on, the samples of one after those of the other.

    Attributes:
        inputs: (N, ...) as the model wants them.
        labels: (N,).
        counts: how many of them are each client's.
        rngs: what orders each client's.
    """

    inputs: Tensor
    labels: Tensor
    counts: list[int]
    rngs: list[torch.Generator]

    def shuffled(self) -> Tensor:
        """(n, most) each client's samples in a new order, with zeros behind those of who has fewer."""
        starts = [0, *accumulate(self.counts)]
        drawn = [torch.randperm(count, generator=rng) for count, rng in zip(self.counts, self.rngs, strict=True)]
        orders = [order + start for order, start in zip(drawn, starts, strict=False)]
        return pad_sequence(orders, batch_first=True).to(self.labels.device)


class Turn(NamedTuple):
    """A step that some clients take together, each with so many samples from a place in its order on."""

    size: int
    members: list[int]
    starts: list[int]

    def batch(self, orders: Tensor) -> Tensor:
        """(rows, size) the samples, from the order of each client."""
        members, starts = torch.tensor([self.members, self.starts], device=orders.device)
        return orders[members[:, None], starts[:, None] + torch.arange(self.size, device=orders.device)]


def turns(sizes: Sequence[Sequence[int]], batch: int) -> list[Turn]:
    """An epoch of clients whose batches have these sizes: full batches by number, then what is left by size."""
    groups: dict[tuple[bool, int, int], list[tuple[int, int]]] = defaultdict(list)
    for client, own in enumerate(sizes):
        for number, size in enumerate(own):
            full = size == batch
            groups[not full, number if full else 0, size].append((client, number * batch))
    ordered = sorted(groups.items())
    return [Turn(size, [who for who, _ in group], [start for _, start in group]) for (_, _, size), group in ordered]
