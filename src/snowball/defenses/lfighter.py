"""LFighter: of two clusters by the most contested classes, average the one that is larger and more diverse.

Jebreel, Domingo-Ferrer, Sánchez, Blanco-Justicia, "LFighter: Defending against the Label-flipping Attack in Federated
Learning", Neural Networks 2024. Attackers who relabel one class as another change the output neurons of these two
classes most, and all in the same way. K-means splits the updates by those neurons' weights. A cluster scores by its
share of the updates, and by how little its members resemble the one that each resembles least. The cluster that scores
higher is averaged.

Deviations: K-means takes the best of 50 starts. Fewer than three updates are not split. If both clusters score alike,
the larger one is averaged, and of two that are as large, the one with the lowest lot. A single output neuron is
compared alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.deepsight import find_output_layer
from snowball.defenses.ops import average_equally, compute_cosines
from snowball.defenses.split_rows import split_rows
from snowball.layout import Layout
from snowball.products import multiply_by_itself
from snowball.updates import Updates

LEAST_SPLIT = 3

CONTESTED = 2
"""The number of output neurons to compare: those of a source and a target of flipped labels."""

DECIMALS = 12
"""Decimals of a cluster's score that are not rounding errors."""


@dataclass(frozen=True)
class LFighter:
    """Average the larger and more diverse of two clusters of updates, by the output neurons that change most."""

    min_updates: ClassVar[int] = 3

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Find the contested classes, split the updates by their neurons, and average the better cluster."""
        neurons = locate_neurons(updates.layout)
        contested = measure_changes(updates, neurons).argsort(descending=True, stable=True)[:CONTESTED].tolist()
        rows = torch.cat([updates.read_columns(neurons[neuron]) for neuron in contested], 1).double()
        products = multiply_by_itself(rows)
        clusters = torch.zeros(len(rows), dtype=torch.int64)
        if len(rows) >= LEAST_SPLIT:
            clusters = split_rows(products, 2, context.stream("starts"))
        elected = choose_cluster(clusters, compute_cosines(products), context.draw_lots(updates.clients))
        classes = " and ".join(map(str, contested))
        return Verdict(average_equally(updates, elected), elected, {"clusters": clusters, "classes": classes})


def locate_neurons(layout: Layout) -> list[slice]:
    """Return the columns of each output neuron's weights."""
    layer, _ = find_output_layer(layout)
    columns, neurons = layout.columns[layer], (*layout.shapes[layout.names.index(layer)], 1)[0]
    width = (columns.stop - columns.start) // neurons
    return [slice(columns.start + neuron * width, columns.start + (neuron + 1) * width) for neuron in range(neurons)]


def measure_changes(updates: Updates, neurons: Sequence[slice]) -> Tensor:
    """Return the (classes,) summed lengths of all updates of each output neuron's weights, plus those of its bias."""
    changes = [torch.linalg.vector_norm(updates.read_columns(neuron).double(), dim=1).sum() for neuron in neurons]
    _, bias = find_output_layer(updates.layout)
    biases = updates.read_columns(updates.layout.columns[bias]).double().abs().sum(0) if bias else 0
    return torch.stack(changes) + biases


def choose_cluster(clusters: Tensor, cosines: Tensor, lots: Tensor) -> Tensor:
    """Return the (n,) mask of the cluster that scores highest; then the larger one, then the lower lot decides."""

    def rank(cluster: int) -> tuple[float, int, int]:
        members = clusters == cluster
        return round(score_cluster(members, cosines), DECIMALS), int(members.sum()), -int(lots[members].min())

    best: int = max(set(clusters.tolist()), key=rank)
    return clusters == best


def score_cluster(members: Tensor, cosines: Tensor) -> float:
    """Return a cluster's share of the rows times how far its members are, in the mean, from the least similar one."""
    least = cosines[members][:, members].amin(1)
    return float(members.double().mean() * (1 - least.mean()))
