from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball_plus import evidence as module
from snowball.defenses.snowball_plus.evidence import (
    MIN_POSITIONS,
    POSITIONS,
    Evidence,
    Moments,
    PlacedLayer,
    Recalled,
    compare_looks,
    fan_in,
    find_hidden_layers,
    find_leaning,
    find_placed_layer,
    gather_evidence,
    read_blocks,
)
from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates

ROUNDING = 1e-6
"""Rows in float32 are compared in float32."""

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
        np.testing.assert_allclose(directions[view].numpy(), units @ units.T, atol=ROUNDING)


@pytest.mark.usefixtures("block_elements")
def test_inputs_are_shares_of_energy(make_round: Callable[..., Any]) -> None:
    updates = make_round(0).updates
    inputs = gather_evidence(updates, None, None).inputs
    assert tuple(inputs) == HIDDEN
    conv = (read_rows(updates, "conv.weight").reshape(50, 4, 3, 3, 3) ** 2).sum(1).reshape(50, 27)
    linear = (read_rows(updates, "hidden.weight").reshape(50, 12, 10) ** 2).sum(1)
    for name, energy in (("conv.weight", conv), ("hidden.weight", linear)):
        expected = np.sqrt(energy / energy.sum(1, keepdims=True))
        np.testing.assert_allclose(inputs[name].numpy(), expected, atol=ROUNDING)


@pytest.mark.usefixtures("block_elements")
def test_rows_are_projected_on_what_is_recalled(make_round: Callable[..., Any]) -> None:
    updates = make_round(0).updates
    recalled = recall_noise(updates.layout)
    evidence = gather_evidence(updates, None, recalled)
    for name in HIDDEN:
        along = to_units(read_rows(updates, name)) @ recalled.directions[name].double().numpy()
        np.testing.assert_allclose(evidence.recalled_directions[name].numpy(), along, atol=ROUNDING)
        shares = evidence.inputs[name] @ recalled.inputs[name]
        torch.testing.assert_close(evidence.recalled_inputs[name], shares)
    assert not gather_evidence(updates, None, None).recalled_directions


@pytest.mark.usefixtures("block_elements")
def test_alignment_is_minus_the_cosine_with_the_model(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    values = planted.updates.values.clone()
    values[0], values[1], values[2] = -3 * planted.base, 0.1 * planted.base, 0
    updates = planted.updates.replace_values(values)
    alignment = gather_evidence(updates, planted.base, None).alignment
    assert alignment is not None
    torch.testing.assert_close(alignment[:3], torch.tensor([1.0, -1, 0], dtype=torch.float64), rtol=0, atol=1e-6)
    base = planted.base.double().numpy()
    rows = to_units(read_rows(updates, *updates.layout.names)[3:])
    np.testing.assert_allclose(alignment[3:].numpy(), -rows @ base / np.linalg.norm(base), atol=ROUNDING)


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
    np.testing.assert_allclose(leans.numpy(), np.array(expected), atol=ROUNDING)


@pytest.mark.parametrize(("classes", "said"), [(1, False), (3, False), (4, True)])
def test_few_classes_say_nothing(classes: int, said: bool) -> None:
    updates = Updates.from_layers({"w": torch.randn(5, classes, 3, generator=stream(0))})
    evidence = gather_evidence(updates, torch.ones(updates.layout.width), None)
    for each in (evidence.leans, evidence.looks, evidence.fits):
        assert (each is not None) == said


def test_without_a_model_nothing_fits_it(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    evidence = gather_evidence(planted.updates, None, None)
    assert evidence.fits is None
    assert evidence.looks is not None
    none = gather_evidence(planted.updates, torch.zeros_like(planted.base), None).fits
    assert none is not None
    assert not none.any()  # a model of zeros has no features


def compare_classes(updates: Updates, leaning: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor]:
    """The looks of given leaning, and the fits."""
    inputs = fan_in(updates.layout, updates.layout.weights[-1])
    moments = Moments.start(*leaning.shape, inputs)
    for columns, inside, block in read_blocks(updates, updates.layout.weights[-1]):
        moments.add(block, None if base is None else base[columns], inside.start)
    return compare_looks(updates, leaning, moments), moments.compare_with_model()


def read_class(updates: Updates, number: int) -> np.ndarray:
    """(n, w) the last layer's weights of a class about their means, in unit rows."""
    rows = read_rows(updates, updates.layout.weights[-1])
    about = np.split(rows, 10, axis=1)[number]
    return to_units(about - about.mean(1, keepdims=True))


@pytest.mark.parametrize("leaned", [0.0, 0.3, 1.0])
def test_looks_are_mean_cosines_with_the_others_who_raise_a_class(
    make_round: Callable[..., Any], leaned: float
) -> None:
    updates = make_round(0, infected=15).updates
    leaning = torch.rand(50, 10, generator=stream(1, "leaning")) < leaned
    leaning[:, 3], leaning[:, 4] = False, torch.arange(50) == 7  # nobody, and one who has nobody to be like
    looks = compare_classes(updates, leaning, None)[0].numpy()
    for number in range(10):
        units, members = read_class(updates, number), leaning[:, number].nonzero().flatten().tolist()
        for row in range(50):
            others = [float(units[row] @ units[other]) for other in members if other != row]
            if row in members and others:
                assert looks[row, number] == pytest.approx(np.mean(others), abs=ROUNDING)
            else:
                assert np.isnan(looks[row, number])


def test_looks_are_those_of_who_leans(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15, lean=0.1)
    evidence = gather_evidence(planted.updates, planted.base, None)
    assert evidence.leans is not None
    assert evidence.looks is not None
    leaning = find_leaning(evidence.leans)
    alone = leaning & (leaning.sum(0) == 1)
    assert torch.equal(~evidence.looks.isnan(), leaning & ~alone)
    assert leaning[planted.infected, 7].all()


def test_who_leans_is_above_an_even_share() -> None:
    leans = torch.tensor([[0.51, 0.5, 0.49, -0.9], [1.0, 0, 0, 0], [0.0, 0, 0, 0]], dtype=torch.float64)
    assert find_leaning(leans).nonzero().tolist() == [[0, 0], [1, 0]]


def test_those_who_raise_a_class_on_the_same_features_look_alike() -> None:
    same, other = torch.tensor([3.0, 0, 0, 1, 0]), torch.tensor([0.0, 3, 0, 0, 1])
    last = torch.zeros(6, 4, 5)
    last[:3, 1], last[3, 2], last[4, 2], last[5, 2] = same, same, other, 2.5  # the last one has no features
    leaning = torch.tensor([[0, 1, 0, 0]] * 3 + [[0, 0, 1, 0]] * 3) > 0
    looks, _ = compare_classes(Updates.from_layers({"last": last}), leaning, None)
    between = float(np.corrcoef(same, other)[0, 1])
    np.testing.assert_allclose(looks[:3, 1].numpy(), 1, atol=ROUNDING)
    np.testing.assert_allclose(looks[3:, 2].numpy(), [between / 2, between / 2, 0], atol=ROUNDING)


def test_fits_are_cosines_with_the_model_per_class(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    updates = planted.updates
    fits = compare_classes(updates, torch.zeros(50, 10, dtype=torch.bool), planted.base)[1]
    assert fits.shape == (50, 10)
    model = updates.replace_values(planted.base[None].repeat(50, 1))
    for number in range(10):
        expected = [
            float(row @ known)
            for row, known in zip(*(read_class(each, number) for each in (updates, model)), strict=True)
        ]
        np.testing.assert_allclose(fits[:, number].numpy(), expected, atol=ROUNDING)


def test_how_far_a_class_is_raised_changes_neither_looks_nor_fits(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    updates, columns = planted.updates, planted.updates.layout.columns["last.weight"]
    values = updates.values.clone()
    values[:, columns] += 0.5  # of each weight as much
    raised = updates.replace_values(values)
    leaning = torch.ones(50, 10, dtype=torch.bool)
    for changed, before in zip(
        *(compare_classes(each, leaning, planted.base) for each in (raised, updates)), strict=True
    ):
        torch.testing.assert_close(changed, before, rtol=0, atol=1e-4)


def test_many_classes_are_compared_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = Updates.from_layers({"last": torch.randn(6, 30, 5, generator=stream(3))})
    leaning, base = torch.rand(6, 30, generator=stream(4)) < 0.5, torch.randn(150, generator=stream(5))
    whole = compare_classes(updates, leaning, base)
    monkeypatch.setattr("snowball.defenses.snowball_plus.evidence.BLOCK_ELEMENTS", 6 * 5 * 7)
    for each, together in zip(compare_classes(updates, leaning, base), whole, strict=True):
        torch.testing.assert_close(each, together, equal_nan=True)


def list_tensors(evidence: Evidence) -> list[Tensor]:
    """All that evidence holds."""
    assert evidence.leans is not None
    assert evidence.looks is not None
    assert evidence.fits is not None
    assert evidence.alignment is not None
    by_layer = (evidence.directions, evidence.inputs, evidence.recalled_directions, evidence.recalled_inputs)
    return [
        evidence.lengths,
        evidence.leans,
        evidence.looks.nan_to_num(9),  # NaN where nobody leans
        evidence.fits,
        evidence.alignment,
        *(each for kind in by_layer for each in kind.values()),
    ]


def test_evidence_does_not_depend_on_arrival_or_claims_to_the_bit(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    updates, order = planted.updates, torch.randperm(50, generator=stream(0))
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples.flip(0), clients, updates.layout)
    recalled = recall_noise(updates.layout)
    here, there = (list_tensors(gather_evidence(each, planted.base, recalled)) for each in (updates, moved))
    assert all(torch.equal(one, other) for one, other in zip(here, there, strict=True))
    np.testing.assert_allclose(
        here[0].numpy(), np.linalg.norm(read_rows(updates, *updates.layout.names), axis=1), ROUNDING
    )


def test_a_row_of_zeros_and_huge_rows_leave_the_evidence_finite(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    values = planted.updates.values.clone()
    values[0], values[1] = 0, 1e30
    updates = planted.updates.replace_values(values)
    evidence = gather_evidence(updates, planted.base, recall_noise(updates.layout))
    assert all(each.isfinite().all() for each in [*list_tensors(evidence), evidence.log_lengths])


def test_hidden_layers_are_those_before_the_last() -> None:
    deep = Layout(("a", "b", "c", "d"), ((2, 3), (2,), (4, 2), (5, 4)))
    assert find_hidden_layers(deep) == ("a", "c")
    assert find_hidden_layers(Layout(("a", "b"), ((2, 3), (2,)))) == ("a",)
    assert find_hidden_layers(Layout(("a", "b"), ((3,), (2,)))) == ("a",)


PLACED = {
    "a convolution and dense layers": ({"conv": (4, 3, 3, 3), "fc": (12, 36), "last": (10, 12)}, ("fc", 9)),
    "two convolutions": ({"a": (4, 3, 3, 3), "b": (6, 4, 3, 3), "fc": (12, 24), "last": (10, 12)}, ("fc", 4)),
    "a one-dimensional convolution": ({"conv": (4, 8, 3), "fc": (12, 20), "last": (10, 12)}, ("fc", 5)),
    "a convolution and the last layer": ({"conv": (4, 3, 3, 3), "last": (10, 64)}, ("last", 16)),
    "biases between": ({"conv": (4, 3, 3, 3), "bias": (4,), "fc": (12, 36), "last": (10, 12)}, ("fc", 9)),
    "dense layers only": ({"fc": (12, 36), "last": (10, 12)}, None),
    "one dense layer": ({"last": (10, 36)}, None),
    "gated recurrent layers": ({"embedding": (50, 8), "ih": (36, 8), "hh": (36, 12), "last": (10, 12)}, None),
    "global pooling": ({"conv": (16, 3, 3, 3), "fc": (12, 16), "last": (10, 12)}, None),
    "too few positions": ({"conv": (4, 3, 3, 3), "fc": (12, 4 * (MIN_POSITIONS - 1)), "last": (10, 12)}, None),
    "just enough positions": (
        {"conv": (4, 3, 3, 3), "fc": (12, 4 * MIN_POSITIONS), "last": (10, 12)},
        ("fc", MIN_POSITIONS),
    ),
    "inputs that do not divide": ({"conv": (4, 3, 3, 3), "fc": (12, 37), "last": (10, 12)}, None),
    "only convolutions": ({"conv": (4, 3, 3, 3), "last": (10, 4, 1, 1)}, None),
    "vectors": ({"scale": (60,), "shift": (60,)}, None),
    "a number last": ({"scale": (60,), "temperature": ()}, None),
    "a number first": ({"temperature": (), "scale": (60,)}, None),
}


@pytest.mark.parametrize("case", PLACED)
def test_the_placed_layer_is_the_first_dense_one_behind_a_convolution(case: str) -> None:
    shapes, expected = PLACED[case]
    found = find_placed_layer(Layout(tuple(shapes), tuple(shapes.values())))
    assert found == (PlacedLayer(*expected, span=1) if expected else None)


@pytest.mark.parametrize("block", [1 << 19, 7, 7 * 5, 7 * 40], ids=["whole", "1 column", "5 columns", "40 columns"])
@pytest.mark.parametrize("last", [False, True], ids=["a hidden layer", "the last layer"])
def test_energy_falls_on_positions(block: int, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    rng, dense = stream(4, "positions"), {} if last else {"last": (10, 5)}
    shapes = {"conv": (3, 2, 3, 3), "fc": (5, 18), **dense}
    layers = {name: torch.randn(7, *shape, generator=rng) for name, shape in shapes.items()}
    updates = Updates.from_layers(layers, clients=[f"c{(3 * row) % 7}" for row in range(7)])
    evidence = gather_evidence(updates, None, None)
    assert tuple(evidence.inputs) == (*find_hidden_layers(updates.layout), POSITIONS)
    assert POSITIONS not in evidence.directions
    weights = read_rows(updates, "fc").reshape(7, 5, 3, 6)  # outputs, channels, positions
    for row in range(7):
        energy = [
            sum(weights[row, output, channel, place] ** 2 for output in range(5) for channel in range(3))
            for place in range(6)
        ]
        np.testing.assert_allclose(
            evidence.inputs[POSITIONS][row].numpy(), np.sqrt(energy / np.sum(energy)), atol=ROUNDING
        )


def test_a_model_without_positions_has_none(make_round: Callable[..., Any]) -> None:
    assert POSITIONS not in gather_evidence(make_round(0).updates, None, None).inputs


@pytest.mark.parametrize("block", [1, 200, 1 << 19])
@pytest.mark.parametrize("most", [64, 4, 1])
def test_rows_are_compared_at_each_position(block: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(module, "MAX_POSITIONS", most)
    layers = {"conv": (3, 1, 3, 3), "fc": (5, 18), "last": (10, 5)}
    rng = stream(4, "positions")
    updates = Updates.from_layers({name: torch.randn(7, *shape, generator=rng) for name, shape in layers.items()})
    evidence = gather_evidence(updates, None, None)
    weights = read_rows(updates, "fc").reshape(7, 15, 6)  # outputs and channels, positions
    span = -(-6 // most)
    cells = np.array_split(np.arange(6), range(span, 6, span))
    assert evidence.positions is not None
    assert len(evidence.positions) == len(cells) == evidence.inputs[POSITIONS].shape[1]
    scaled = weights / np.linalg.norm(weights, axis=(1, 2), keepdims=True)
    centred = scaled - scaled.mean(0)
    for found, inside in zip(evidence.positions, cells, strict=True):
        rows = centred[:, :, inside].reshape(7, -1)
        np.testing.assert_allclose(found.numpy(), rows @ rows.T, atol=ROUNDING)
    np.testing.assert_allclose(evidence.layer_lengths["fc"].numpy(), np.linalg.norm(weights, axis=(1, 2)), ROUNDING)
