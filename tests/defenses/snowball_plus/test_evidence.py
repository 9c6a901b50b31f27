from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball_plus import evidence as module
from snowball.defenses.snowball_plus.evidence import (
    Evidence,
    Recalled,
    fan_in,
    find_hidden_layers,
    gather_evidence,
)
from snowball.rng import stream
from snowball.updates import Layout, Updates

HIDDEN = ("conv.weight", "hidden.weight")
VIEWS = {
    "conv.weight": ("conv.weight",),
    "hidden.weight": ("hidden.weight",),
    "last.weight": ("last.weight",),
    module.HIDDEN: HIDDEN,
    module.ALL: (*HIDDEN, "last.weight"),
}


def read_rows(updates: Updates, *layers: str) -> np.ndarray:
    """(n, w) the rows of some layers in the order of client ids, in float64."""
    rows = updates.values[sorted(range(len(updates)), key=lambda row: updates.clients[row])].double().numpy()
    return np.concatenate([rows[:, updates.layout.columns[name]] for name in layers], axis=1)


def to_units(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def recall_noise(layout: Layout) -> Recalled:
    """Directions and inputs that no round left."""
    rng = stream(0, "recalled")
    widths = {name: layout.columns[name].stop - layout.columns[name].start for name in find_hidden_layers(layout)}
    return Recalled(
        {name: torch.randn(width, generator=rng) for name, width in widths.items()},
        {name: torch.randn(fan_in(layout, name), generator=rng, dtype=torch.float64) for name in widths},
    )


@pytest.fixture(params=[1 << 19, 50, 350], ids=["whole", "1 column", "7 columns"])
def block_elements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Elements in a block: all columns of 50 rows at once, one or seven, which cuts through layers and inputs."""
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", request.param)
    return int(request.param)


@pytest.mark.usefixtures("block_elements")
def test_directions_are_centred_cosines(make_round: Callable[..., Any]) -> None:
    updates = make_round(0, infected=15).updates
    directions = gather_evidence(updates, None, None).directions
    assert directions.keys() == VIEWS.keys()
    for view, layers in VIEWS.items():
        units = to_units(read_rows(updates, *layers))
        units -= units.mean(0)
        np.testing.assert_allclose(directions[view].numpy(), units @ units.T, atol=1e-12)


@pytest.mark.usefixtures("block_elements")
def test_inputs_are_shares_of_energy(make_round: Callable[..., Any]) -> None:
    updates = make_round(0).updates
    inputs = gather_evidence(updates, None, None).inputs
    assert tuple(inputs) == HIDDEN
    conv = (read_rows(updates, "conv.weight").reshape(50, 4, 3, 3, 3) ** 2).sum(1).reshape(50, 27)
    linear = (read_rows(updates, "hidden.weight").reshape(50, 12, 10) ** 2).sum(1)
    for name, energy in (("conv.weight", conv), ("hidden.weight", linear)):
        expected = np.sqrt(energy / energy.sum(1, keepdims=True))
        np.testing.assert_allclose(inputs[name].numpy(), expected, atol=1e-12)


@pytest.mark.usefixtures("block_elements")
def test_rows_are_projected_on_what_is_recalled(make_round: Callable[..., Any]) -> None:
    updates = make_round(0).updates
    recalled = recall_noise(updates.layout)
    evidence = gather_evidence(updates, None, recalled)
    for name in HIDDEN:
        along = to_units(read_rows(updates, name)) @ recalled.directions[name].double().numpy()
        np.testing.assert_allclose(evidence.recalled_directions[name].numpy(), along, atol=1e-12)
        shares = evidence.inputs[name] @ recalled.inputs[name]
        torch.testing.assert_close(evidence.recalled_inputs[name], shares)
    assert not gather_evidence(updates, None, None).recalled_directions


@pytest.mark.usefixtures("block_elements")
def test_alignment_is_minus_the_cosine_with_the_model(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    values = planted.updates.values.clone()
    first, second, third = planted.updates.by_client[:3].tolist()
    values[first], values[second], values[third] = -3 * planted.base, 0.1 * planted.base, 0
    updates = replace(planted.updates, values=values)
    alignment = gather_evidence(updates, planted.base, None).alignment
    assert alignment is not None
    torch.testing.assert_close(alignment[:3], torch.tensor([1.0, -1, 0], dtype=torch.float64), rtol=0, atol=1e-6)
    base = planted.base.double().numpy()
    rows = to_units(read_rows(updates, *updates.layout.names)[3:])
    np.testing.assert_allclose(alignment[3:].numpy(), -rows @ base / np.linalg.norm(base), atol=1e-7)


def test_without_a_model_nothing_is_aligned(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    assert gather_evidence(planted.updates, None, None).alignment is None
    assert gather_evidence(planted.updates, torch.zeros_like(planted.base), None).alignment is None


def test_leans_by_hand() -> None:
    last = torch.tensor(
        [
            [[2.0, 1], [0, 1], [-1, 0], [-2, -1]],  # sums of 3, 1, -1 and -3
            [[5, 5], [5, 5], [5, 5], [6, 6]],  # sums of 10, 10, 10 and 12
            [[1, 0], [0, 1], [1, 0], [0, 1]],  # raises no class above the others
            [[0, 0], [0, 0], [0, 0], [0, 0]],
        ]
    )
    updates = Updates.from_layers({"first": torch.ones(4, 2, 3), "last": last, "bias": torch.ones(4, 4)})
    expected = [np.array([3, 1, -1, -3]) / 20**0.5, np.array([-1, -1, -1, 3]) / 12**0.5, np.zeros(4), np.zeros(4)]
    leans = gather_evidence(updates, None, None).leans
    assert leans is not None
    np.testing.assert_allclose(leans.numpy(), np.array(expected), atol=1e-12)


@pytest.mark.parametrize(("classes", "said"), [(1, False), (3, False), (4, True)])
def test_few_classes_say_nothing(classes: int, said: bool) -> None:
    updates = Updates.from_layers({"w": torch.randn(5, classes, 3, generator=stream(0))})
    assert (gather_evidence(updates, None, None).leans is not None) == said


def list_tensors(evidence: Evidence) -> list[Tensor]:
    """All that evidence holds."""
    assert evidence.leans is not None
    assert evidence.alignment is not None
    by_layer = (evidence.directions, evidence.inputs, evidence.recalled_directions, evidence.recalled_inputs)
    return [
        evidence.lengths,
        evidence.leans,
        evidence.alignment,
        *(each for kind in by_layer for each in kind.values()),
    ]


def test_evidence_is_in_the_order_of_clients_to_the_bit(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    updates, order = planted.updates, planted.updates.by_client
    clients = tuple(updates.clients[row] for row in order)
    assert clients == tuple(sorted(clients))
    assert clients != updates.clients
    moved = Updates(updates.values[order], updates.examples[order].flip(0), clients, updates.layout)
    recalled = recall_noise(updates.layout)
    here, there = (list_tensors(gather_evidence(each, planted.base, recalled)) for each in (updates, moved))
    assert all(torch.equal(one, other) for one, other in zip(here, there, strict=True))
    np.testing.assert_allclose(here[0].numpy(), np.linalg.norm(read_rows(updates, *updates.layout.names), axis=1))


def test_a_row_of_zeros_and_huge_rows_leave_the_evidence_finite(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    values = planted.updates.values.clone()
    values[0], values[1] = 0, 1e30
    updates = replace(planted.updates, values=values)
    evidence = gather_evidence(updates, planted.base, recall_noise(updates.layout))
    assert all(each.isfinite().all() for each in [*list_tensors(evidence), evidence.log_lengths])


def test_hidden_layers_are_those_before_the_last() -> None:
    deep = Layout(("a", "b", "c", "d"), ((2, 3), (2,), (4, 2), (5, 4)))
    assert find_hidden_layers(deep) == ("a", "c")
    assert find_hidden_layers(Layout(("a", "b"), ((2, 3), (2,)))) == ("a",)
    assert find_hidden_layers(Layout(("a", "b"), ((3,), (2,)))) == ("a",)
