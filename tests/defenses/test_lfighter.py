from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from snowball.defenses import Context
from snowball.defenses.lfighter import LFighter, choose_cluster, locate_neurons, measure_changes, score_cluster
from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates

HONEST = [[[1.0, 0], [0, 0], [0, 0]], [[0, 1], [0, 0], [0, 0]], [[0, 0], [0, 0], [1, 0]]]
FLIPPED = [[-5.0, 0], [1, 1], [5, 0]]


def make_round(weights: list[list[list[float]]], examples: list[int] | None = None) -> Updates:
    hidden = torch.arange(len(weights)).double()[:, None]
    layers = {"hidden": hidden, "out.weight": torch.tensor(weights).double()}
    return Updates.from_layers(layers, examples)


def test_the_diverse_majority_by_hand() -> None:
    """Classes 0 and 2 change most. Three at right angles score 3/5 * (1 - 0), two that are equal 2/5 * (1 - 1)."""
    verdict = LFighter()(make_round([*HONEST, FLIPPED, FLIPPED], [1, 1, 9, 9, 9]), Context(round=1))
    assert verdict.elected.tolist() == [True] * 3 + [False] * 2
    assert verdict.facts["classes"] == "0 and 2"
    assert verdict.delta.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 0, 0, 1 / 3, 0])  # examples do not weigh


def test_a_diverse_minority_outscores_a_crowd_that_is_alike() -> None:
    """Two at right angles score 2/6 * 1, and four that are equal 4/6 * 0."""
    verdict = LFighter()(make_round([*HONEST[:2], *[FLIPPED] * 4]), Context(round=1))
    assert verdict.elected.tolist() == [True] * 2 + [False] * 4


def test_a_score_by_hand() -> None:
    cosines = torch.tensor([[1, 0.5, 0.2, -1], [0.5, 1, 0.8, -1], [0.2, 0.8, 1, -1], [-1, -1, -1, 1]])
    members = torch.tensor([True, True, True, False])
    assert score_cluster(members, cosines) == pytest.approx(0.75 * (1 - (0.2 + 0.5 + 0.2) / 3))
    assert score_cluster(~members, cosines) == 0


@pytest.mark.parametrize(
    ("clusters", "lots", "best"),
    [([0, 1, 1], [1, 2, 3], 1), ([0, 0, 1], [3, 2, 1], 0), ([0, 1, 0, 1], [4, 1, 2, 3], 1)],
)
def test_of_equal_scores_the_larger_cluster_or_the_lower_lot_wins(
    clusters: list[int], lots: list[int], best: int
) -> None:
    labels = torch.tensor(clusters)
    alike = torch.ones(len(labels), len(labels)) - 1e-15 * torch.arange(len(labels))
    assert choose_cluster(labels, alike.double(), torch.tensor(lots)).tolist() == (labels == best).tolist()


def test_changes_by_hand() -> None:
    """The lengths of the weights are 5 and 1 for class 0, 0 and 2 for class 1; of the biases 1 and 3, 1 and 0."""
    weight = torch.tensor([[[3.0, 4], [0, 0]], [[0, -1], [2, 0]]])
    layers = {"out.weight": weight, "out.bias": torch.tensor([[1.0, -1], [-3, 0]])}
    updates = Updates.from_layers(layers)
    neurons = locate_neurons(updates.layout)
    assert neurons == [slice(0, 2), slice(2, 4)]
    assert measure_changes(updates, neurons).tolist() == [10, 3]
    unbiased = Updates.from_layers({"out.weight": weight})
    assert measure_changes(unbiased, neurons).tolist() == [6, 2]


def test_neurons_are_the_rows_of_the_last_weight_layer() -> None:
    assert locate_neurons(Layout(("a", "b", "c"), ((2, 2), (3, 2, 2), (3,)))) == [
        slice(*edges) for edges in pairwise(range(4, 17, 4))
    ]
    assert locate_neurons(Layout(("a",), ((2,),))) == [slice(0, 1), slice(1, 2)]


def judge_plainly(weights: Tensor) -> list[bool]:
    """Judge (n, classes, features) updates with scikit-learn."""
    numbers = weights.numpy()
    top = np.argsort(-np.linalg.norm(numbers, axis=2).sum(0))[:2]
    rows = numbers[:, top].reshape(len(numbers), -1)
    labels = KMeans(2, n_init=50, random_state=0).fit_predict(rows)
    scores = [(labels == k).mean() * (1 - cosine_similarity(rows[labels == k]).min(1).mean()) for k in range(2)]
    return [bool(elected) for elected in labels == int(np.argmax(scores))]


@pytest.mark.parametrize("seed", range(4))
def test_the_verdict_is_that_of_scikit_learns_parts(seed: int) -> None:
    weights = torch.randn(25, 6, 10, generator=stream(seed, "weights"), dtype=torch.float64)
    weights[17:, 1] -= 2
    weights[17:, 4] += 2
    verdict = LFighter()(Updates.from_layers({"out": weights}), Context(round=1))
    assert verdict.facts["classes"] in ("1 and 4", "4 and 1")
    assert verdict.elected.tolist() == judge_plainly(weights) == [True] * 17 + [False] * 8


def test_two_updates_are_not_split() -> None:
    assert LFighter()(make_round(HONEST[:2]), Context(round=1)).elected.all()
