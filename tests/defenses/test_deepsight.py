from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses import Context, deepsight
from snowball.defenses.deepsight import (
    DeepSight,
    compare_outputs,
    compare_predictions,
    compute_distances,
    compute_log_shares,
    compute_suspicious_shares,
    count_exceedings,
    find_output_layer,
    label_clusters,
    mark_apart,
    measure_energies,
)
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates

LAYOUT = Layout(("hidden", "out.weight", "out.bias"), ((3, 3), (4, 3), (4,)))
QUICK = DeepSight(probes=50, seeds=2)


class Network:
    """A linear layer, a rectifier and an output layer, as a function of a row of `LAYOUT`."""

    def __init__(self) -> None:
        self.passes = 0
        self.draws: list[Tensor] = []

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        self.passes += len(inputs)
        tensors = LAYOUT.split(row)
        return (inputs @ tensors["hidden"].T).relu() @ tensors["out.weight"].T + tensors["out.bias"]

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        self.draws.append(torch.rand(count, 3, generator=rng))
        return self.draws[-1]


BASE = torch.randn(LAYOUT.width, generator=stream(0, "base"))


def attacked(benign: int = 9, malicious: int = 3, seed: int = 0) -> Updates:
    """Benign updates move every output neuron a little, malicious ones one of them a lot."""
    rows = 0.1 * torch.randn(benign + malicious, LAYOUT.width, generator=stream(seed, "rows"))
    tensors = [LAYOUT.split(row) for row in rows]
    for tensor in tensors[:benign]:
        tensor["out.weight"] += 0.2
        tensor["out.bias"] += torch.tensor([0.3, -0.3, 0.3, 0.3])
    for tensor in tensors[benign:]:
        tensor["out.weight"][1] += 3
        tensor["out.bias"][1] += 3
    return Updates(rows, torch.ones(len(rows)), tuple(f"c{row:02}" for row in range(len(rows))), LAYOUT)


def of_output(weight: Any, bias: Any = None) -> Updates:
    layers = {"out.weight": torch.tensor(weight).float()}
    return Updates.from_layers(layers if bias is None else {"out.bias": torch.tensor(bias).float(), **layers})


def test_energies_and_exceedings_by_hand() -> None:
    weight = [[[1, -1], [0, 0], [1, 0], [0, 0]], [[1, 1], [0, 0], [0, -2], [1, 0.5]], [[0, 0]] * 4]
    energies = measure_energies(of_output(weight, [[0, 1, 0, 0], [0, 0, 0, -0.5], [0, 0, 0, 0]]))
    expected = torch.tensor([[4, 1, 1, 0], [4, 0, 4, 4], [0, 0, 0, 0]]) / torch.tensor([[6], [12], [1]])
    torch.testing.assert_close(energies, expected.double())
    assert count_exceedings(energies).tolist() == [1, 3, 0]  # a quarter of the largest does not exceed it


def test_the_threshold_is_a_hundredth_of_the_largest_at_least() -> None:
    energies = torch.tensor([[1.0, *[0.009] * 100, *[0.011] * 99]])
    assert count_exceedings(energies).tolist() == [100]


def test_the_output_layer_is_the_last_weight_layer_with_the_bias_of_its_module() -> None:
    assert find_output_layer(LAYOUT) == ("out.weight", "out.bias")
    assert find_output_layer(Layout(("0.weight", "0.bias", "2.weight"), ((2, 2), (2,), (3, 2)))) == ("2.weight", None)
    assert find_output_layer(Layout(("weight", "bias"), ((2, 2), (2,)))) == ("weight", "bias")


def test_cosines_are_of_the_bias_or_of_the_weights_where_there_is_none() -> None:
    weight, bias = [[[1], [0]], [[0], [1]], [[2], [0]]], [[1, 0], [3, 0], [0, 1]]
    assert compare_outputs(of_output(weight, bias)).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert compare_outputs(of_output(weight)).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_division_differences_are_mean_ratios_of_softmax_outputs() -> None:
    updates, network = attacked(3, 1), Network()
    inputs = network.random_inputs(20, stream(1))
    found = compare_predictions(updates, BASE, network, inputs)

    def shares(row: Tensor) -> np.ndarray:
        scores = np.exp(network(row, inputs).double().numpy())
        return scores / scores.sum(1, keepdims=True)

    expected = [(shares(BASE + row) / shares(BASE)).mean(0) for row in updates.values]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_broken_model_is_merely_far_away() -> None:
    scores = torch.tensor([[float("nan"), 0.0], [float("inf"), float("-inf")], [1e38, -1e38]])
    assert compute_log_shares(scores).isfinite().all()
    updates = attacked()
    updates.values[0] = 1e30
    certain = BASE.clone()
    certain[LAYOUT.columns["out.bias"]] = torch.tensor([0.0, 0, 0, 1e4])
    differences = compare_predictions(updates, certain, Network(), torch.rand(5, 3, generator=stream(0)))
    assert compute_distances(differences).isfinite().all()
    assert QUICK(updates, Context(round=1, base=BASE, model=Network())).delta.isfinite().all()


def test_models_that_differ_inside_alone_are_parted_by_their_answers_alone() -> None:
    updates = attacked(8, 0)
    updates.values[:, 9:] = 1
    updates.values[4:, :9] += 2
    told = QUICK(updates, Context(round=1, base=BASE, model=Network())).facts["clusters"].tolist()
    assert not set(told[:4]) & set(told[4:])
    assert len(set(told)) < 8
    assert len(set(QUICK(updates, Context(round=1, base=BASE)).facts["clusters"].tolist())) == 8


def test_near_points_far_out_keep_their_distances() -> None:
    points = 1e8 + torch.arange(30, dtype=torch.float64)[:, None]
    assert compute_distances(points)[0].tolist() == list(range(30))


def test_a_row_of_no_cluster_is_one_of_its_own() -> None:
    points = torch.tensor([[0.0], [0.1], [5.0], [5.1], [90.0], [900.0]]).double()
    labels = label_clusters(compute_distances(points))
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert len(set(labels.tolist())) == 4
    parted = mark_apart(labels)
    assert parted[4].tolist() == [1, 1, 1, 1, 0, 1]
    assert parted[0].tolist() == [0, 0, 1, 1, 1, 1]


def test_a_cluster_is_judged_by_the_share_of_its_suspicious_rows() -> None:
    suspicious = torch.tensor([True, False, False, True, False, False, False])
    shares = compute_suspicious_shares(torch.tensor([5, 5, 5, 0, 0, 0, 0]), suspicious)
    torch.testing.assert_close(shares, torch.tensor([1 / 3] * 3 + [1 / 4] * 4).double())


@pytest.mark.parametrize("model", [Network(), None])
@pytest.mark.parametrize("seed", range(3))
def test_updates_that_move_one_output_neuron_are_left_out_and_the_rest_is_clipped(
    model: Network | None, seed: int
) -> None:
    updates = attacked(seed=seed)
    verdict = QUICK(updates, Context(round=1, base=BASE, model=model))
    assert verdict.elected.tolist() == [True] * 9 + [False] * 3
    assert verdict.facts["suspicious"].tolist() == [False] * 9 + [True] * 3
    rows = updates.values.double().numpy()
    norms = np.linalg.norm(rows, axis=1)
    kept = rows[:9] * np.minimum(1, np.median(norms) / norms[:9])[:, None]
    assert verdict.facts["bound"] == pytest.approx(np.median(norms))
    np.testing.assert_allclose(verdict.delta, kept.mean(0), rtol=1e-5, atol=1e-7)


def test_every_model_is_tried_on_every_probe() -> None:
    network, updates = Network(), attacked()
    verdict = QUICK(updates, Context(round=1, base=BASE, model=network))
    assert verdict.facts["probed"] == 100
    assert network.passes == 100 * (len(updates) + 1)
    assert not torch.equal(*network.draws)
    assert QUICK(updates, Context(round=1)).facts["probed"] == 0


def test_row_order_is_irrelevant_with_a_model_too() -> None:
    updates = attacked()
    order = torch.randperm(len(updates), generator=stream(0, "order"))
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples[order], clients, LAYOUT)
    here, there = (QUICK(rows, Context(round=1, base=BASE, model=Network())) for rows in (updates, moved))
    assert torch.equal(here.elected, there.elected)
    assert torch.equal(here.facts["clusters"], there.facts["clusters"])
    torch.testing.assert_close(here.delta, there.delta)


def test_where_no_cluster_is_accepted_the_unsuspicious_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepsight, "cluster_rows", lambda distances, *_: torch.zeros(len(distances), dtype=torch.int64))
    verdict = DeepSight()(attacked(6, 3), Context(round=1))
    assert verdict.facts["accepted"] == 0
    assert verdict.elected.tolist() == [True] * 6 + [False] * 3


def test_one_suspicious_row_does_not_spoil_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepsight, "cluster_rows", lambda distances, *_: torch.zeros(len(distances), dtype=torch.int64))
    verdict = DeepSight()(attacked(6, 1), Context(round=1))
    assert verdict.facts["suspicious"].sum() == 1
    assert verdict.elected.all()


def test_rows_that_say_nothing_are_all_taken() -> None:
    verdict = DeepSight()(of_output([[[0.0, 0.0]] * 4] * 5), Context(round=1))
    assert verdict.elected.all()
    assert verdict.facts["accepted"] == 0


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_judged_each_on_its_own(rows: int) -> None:
    assert QUICK(attacked(rows, 0), Context(round=1, base=BASE, model=Network())).elected.all()
    assert QUICK(attacked(rows, 1), Context(round=1)).elected[:rows].all()


def test_a_model_without_its_parameters_is_refused() -> None:
    with pytest.raises(SettingError, match=r"deepsight needs Context\.base"):
        QUICK(attacked(), Context(round=1, model=Network()))


@pytest.mark.parametrize("settings", [{"probes": 0}, {"seeds": 0}])
def test_bad_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=r"must be 1 or more, got (0 probes and 3|20000 probes and 0) seeds"):
        DeepSight(**settings)
