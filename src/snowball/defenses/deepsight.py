"""DeepSight: inspect output layers, and leave out the clusters of models that were trained on too few labels.

Rieger et al., "DeepSight: Mitigating Backdoor Attacks in Federated Learning Through Deep Model Inspection", NDSS 2022.
The output neurons that an update moves show how mixed its training data are, and data that plant a backdoor consist
mostly of one label. Updates are clustered by three views of this; a cluster that is one third suspicious is left out.

Deviations: if the output layer has no bias, its weights are used instead. Without a model to run, the view through
random inputs is omitted. The cluster sizes for HDBSCAN are ours, since the paper gives none. A row outside all clusters
forms its own. If no cluster is accepted, all rows that are not suspicious are; if there are none, all rows are.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Model, Verdict, require
from snowball.defenses.clustering import NOISE, cluster_rows, compute_cosine_distances
from snowball.defenses.ops import average_clipped, elect_everyone
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates

LEAST_CLUSTER, NEIGHBOURS = 2, 1
"""HDBSCAN's sizes, the smallest possible: two attackers may already form a cluster."""

LEAST_FACTOR = 0.01
"""The minimum share of the strongest output neuron's energy that counts as exceeding, for any number of neurons."""

MOST_SUSPICIOUS = 1 / 3
"""The share of suspicious rows at which a cluster is left out (the paper's tau)."""

LARGEST_SCORE, LARGEST_LOG_RATIO = 1e30, 50.0
"""Upper limits of scores and of their log ratios; with them a broken model is merely far from all others."""


@dataclass(frozen=True)
class DeepSight:
    """Average the clusters of updates whose output layers look trained on mixed labels, clipped to the median length.

    Attributes:
        probes: random inputs on which models are compared; each costs one forward pass per model.
        seeds: independent draws of these inputs, each with its own clustering.
    """

    min_updates: ClassVar[int] = 3
    probes: int = 20_000
    seeds: int = 3

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if self.probes < 1 or self.seeds < 1:
            raise SettingError(f"probes and seeds must be 1 or more, got {self.probes} probes and {self.seeds} seeds")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Cluster the updates, judge the clusters, clip and average the remaining updates."""
        energies = measure_energies(updates)  # (n, classes)
        exceedings = count_exceedings(energies)
        suspicious = exceedings <= exceedings.quantile(0.5) / 2
        clusters = self._ensemble(updates, energies, context)
        accepted = compute_suspicious_shares(clusters, suspicious) < MOST_SUSPICIOUS
        elected = next(mask for mask in (accepted, ~suspicious, elect_everyone(updates)) if mask.any())
        norms = updates.squared_norms.sqrt()
        bound = float(norms.quantile(0.5))
        facts = {"exceedings": exceedings, "suspicious": suspicious, "clusters": clusters, "norms": norms}
        counts = {"accepted": int(accepted.sum()), "probed": self.seeds * self.probes if context.model else 0}
        return Verdict(average_clipped(updates, elected, bound), elected, {**facts, **counts, "bound": bound})

    def _ensemble(self, updates: Updates, energies: Tensor, context: Context) -> Tensor:
        """Return the (n,) cluster of each row, from how often the clusterings of all views separate it from others."""
        views = [
            mark_apart(label_clusters(compute_distances(energies))),
            mark_apart(label_clusters(compare_outputs(updates))),
        ]
        if context.model is not None:
            views.append(self._probe(updates, context.model, context))
        return label_clusters(torch.stack(views).mean(0))

    def _probe(self, updates: Updates, model: Model, context: Context) -> Tensor:
        """Return the (n, n) share of draws of random inputs whose clustering separates two rows."""
        base, parted = require(context.base, "base", "deepsight"), []
        for seed in range(self.seeds):
            inputs = model.random_inputs(self.probes, context.stream("probes", seed))
            answers = compare_predictions(updates, base, model, inputs)
            parted.append(mark_apart(label_clusters(compute_distances(answers))))
        return torch.stack(parted).mean(0)


def find_output_layer(layout: Layout) -> tuple[str, str | None]:
    """Return the last weight layer, whose rows are output neurons, and the bias of the same module if it has one."""
    weight = layout.weights[-1]
    bias = weight.removesuffix("weight") + "bias"
    return weight, bias if bias in layout.names else None


def measure_energies(updates: Updates) -> Tensor:
    """Return the (n, classes) squared share of each output neuron in an update's change: the paper's NEUP."""
    weight, bias = find_output_layer(updates.layout)
    shape = updates.layout.shapes[updates.layout.names.index(weight)]
    classes, columns = (*shape, 1)[0], updates.layout.columns[weight]
    moved = [torch.linalg.vector_norm(row[columns].reshape(classes, -1).double(), 1, dim=1) for row in updates.rows]
    energies = torch.stack(moved)
    if bias is not None:
        energies += updates.read_columns(updates.layout.columns[bias]).double().abs()
    squares = energies**2
    total = squares.sum(1, keepdim=True)
    return squares / total.where(total > 0, 1)


def count_exceedings(energies: Tensor) -> Tensor:
    """Return the (n,) number of output neurons that move noticeably compared to the strongest one: the paper's TE."""
    factor = max(LEAST_FACTOR, 1 / energies.shape[1])
    return (energies > factor * energies.amax(1, keepdim=True)).sum(1).double()


def compare_outputs(updates: Updates) -> Tensor:
    """Return the (n, n) cosine distances between the updates of the output bias, or of the weights without a bias."""
    weight, bias = find_output_layer(updates.layout)
    layer = updates.select_layer(bias or weight)
    return compute_cosine_distances(layer, torch.zeros(layer.layout.width, dtype=layer.dtype))


def compare_predictions(updates: Updates, base: Tensor, model: Model, inputs: Tensor) -> Tensor:
    """Return the (n, classes) mean ratio of local to global probability of each class: the paper's DDif."""
    before = compute_log_shares(model(base, inputs))
    ratios = [
        (compute_log_shares(model((base + row).to(base.dtype), inputs)) - before)
        .clamp(max=LARGEST_LOG_RATIO)
        .exp()
        .mean(0)
        for row in updates.rows
    ]
    return torch.stack(ratios)


def compute_log_shares(scores: Tensor) -> Tensor:
    """Return the (inputs, classes) log probabilities behind a model's scores; finite for any scores."""
    return scores.double().nan_to_num(0, LARGEST_SCORE, -LARGEST_SCORE).log_softmax(1)


def compute_distances(rows: Tensor) -> Tensor:
    """Return the (n, n) distances between a few features of the rows."""
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")  # the other mode loses small ones


def label_clusters(distances: Tensor) -> Tensor:
    """Return the (n,) cluster of each row; a row outside all clusters forms its own."""
    labels = cluster_rows(distances, LEAST_CLUSTER, NEIGHBOURS)
    return labels.where(labels != NOISE, torch.arange(len(labels)) + len(labels))


def mark_apart(clusters: Tensor) -> Tensor:
    """Return an (n, n) matrix that is 0 where two rows share a cluster and 1 elsewhere."""
    return (clusters[:, None] != clusters).double()


def compute_suspicious_shares(clusters: Tensor, suspicious: Tensor) -> Tensor:
    """Return the (n,) share of suspicious rows in the cluster of each row."""
    together = 1 - mark_apart(clusters)
    return together @ suspicious.double() / together.sum(1)
