"""The bottom-up election: every update clusters all updates and votes for those in its own cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.ops import compute_squared_distances
from snowball.defenses.snowball.kmeans import compute_calinski_harabasz, run_lloyd
from snowball.updates import Updates


@dataclass(frozen=True)
class Ballots:
    """The votes, layer by layer.

    Attributes:
        totals: (n,) votes that each row received, rounded to 1e-9 so that totals equal up to rounding errors tie.
        votes: (n,) votes that each row received, by layer.
        clarity: (n,) Calinski-Harabasz score of each voter's clustering, by layer.
        weight: (n,) weight of each voter's ballot, by layer.
    """

    totals: Tensor
    votes: dict[str, Tensor]
    clarity: dict[str, Tensor]
    weight: dict[str, Tensor]


def count_ballots(updates: Updates, layers: Sequence[str], clusters: int, floor: float = 0.0) -> Ballots:
    """Hold the election over the given layers."""
    votes, clarity, weight = {}, {}, {}
    for layer in layers:
        gram = updates.products(layer)
        found = run_lloyd(gram, choose_centroids(gram, clusters))
        labels = found.labels  # (voter, row)
        scores = compute_calinski_harabasz(gram, found, clusters)
        weights = weigh_ballots(scores, floor)
        approved = labels == labels.diagonal()[:, None]  # (voter, row): in the voter's own cluster
        votes[layer] = weights @ approved.to(weights.dtype)
        clarity[layer], weight[layer] = scores, weights
    return Ballots(torch.stack(list(votes.values())).sum(0).round(decimals=9), votes, clarity, weight)


def choose_centroids(gram: Tensor, clusters: int) -> Tensor:
    """Return the (n, clusters) rows that each voter starts from: itself, then the rows farthest from it."""
    distances = compute_squared_distances(gram).fill_diagonal_(torch.inf)  # each voter comes first
    return distances.sort(dim=1, descending=True, stable=True).indices[:, :clusters]


def weigh_ballots(scores: Tensor, floor: float) -> Tensor:
    """Scale the voters' clarity to [floor, 1]; if all are equal, every ballot counts one."""
    low, high = scores.min(), scores.max()
    if high - low <= 1e-9 * high:
        return torch.ones_like(scores)
    return floor + (1 - floor) * (scores - low) / (high - low)
