"""The evidence is that of plain definitions in float64, whatever the shapes, and however long a row is."""

from math import prod

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from snowball.defenses.snowball_plus import evidence as module
from snowball.defenses.snowball_plus.evidence import Evidence, Recalled, find_leaning, gather_evidence
from snowball.differences import Differences
from snowball.rng import stream
from snowball.updates import Updates

CLOSE = {"rtol": 2e-6, "atol": 2e-6, "equal_nan": True}
ROWS = 9

Shapes = dict[str, tuple[int, ...]]

MODELS: dict[str, Shapes] = {
    "dense": {"first": (7, 6), "bias": (7,), "last": (5, 7)},
    "positions": {"conv": (3, 2, 3, 3), "fc": (8, 3 * 9), "last": (6, 8), "bias": (6,)},
    "positions in the last layer": {"conv": (3, 1, 3, 3), "last": (5, 3 * 4)},
    "few classes": {"first": (9, 8), "last": (3, 9)},
    "a single layer": {"last": (4, 11)},
    "wide outputs": {"first": (6, 5), "last": (4, 60)},
    "many classes": {"first": (4, 5), "last": (40, 3)},
}


def to_units(values: Tensor, dim: int) -> Tensor:
    """Return values of length 1, or 0, along a dimension."""
    lengths = values.norm(dim=dim, keepdim=True)
    return values / lengths.where(lengths > 0, 1)


def make_rows(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Return rows with a common direction, by layer."""
    rng = stream(seed, "precision")
    return {
        name: 0.01 * (torch.randn(ROWS, *shape, generator=rng) + torch.randn(shape, generator=rng))
        for name, shape in shapes.items()
    }


def recall_noise(shapes: Shapes, found: Evidence) -> Recalled:
    """Return directions and inputs of the shapes that such evidence has."""
    rng = stream(0, "recalled")
    directions = {name: torch.randn(prod(shapes[name]), generator=rng) for name in found.inputs if name in shapes}
    inputs = {name: torch.randn(each.shape[1], generator=rng).double() for name, each in found.inputs.items()}
    return Recalled(directions, inputs)


def compare_rows(rows: Tensor) -> Tensor:
    """Return the centred cosines of rows."""
    units = to_units(rows, 1)
    units = units - units.mean(0)
    return units @ units.T


def check_evidence(found: Evidence, layers: dict[str, Tensor], base: Tensor | None, recalled: Recalled | None) -> None:
    """Compare evidence with its definition, layer by layer and class by class."""
    exact = {name: layer.double() for name, layer in layers.items()}
    flat = {name: layer.flatten(1) for name, layer in exact.items()}
    whole = torch.cat(list(flat.values()), 1)
    torch.testing.assert_close(found.lengths, whole.norm(dim=1), rtol=1e-6, atol=0)
    for name, lengths in found.layer_lengths.items():
        torch.testing.assert_close(lengths, flat[name].norm(dim=1), rtol=1e-6, atol=0)
        torch.testing.assert_close(found.directions[name], compare_rows(flat[name]), **CLOSE)
    weights = torch.cat([flat[name] for name in found.layer_lengths], 1)
    torch.testing.assert_close(found.directions[module.ALL], compare_rows(weights), **CLOSE)
    for name in exact.keys() & found.inputs.keys():
        outputs = exact[name].flatten(2) if exact[name].ndim > 2 else exact[name][:, :, None]
        torch.testing.assert_close(found.inputs[name], to_units(outputs.square().sum(1).sqrt(), 1), **CLOSE)
        if recalled:
            along = to_units(flat[name], 1) @ recalled.directions[name].double()
            torch.testing.assert_close(found.recalled_directions[name], along, rtol=2e-6, atol=2e-5)
    if found.positions is not None:
        check_positions(found.positions, next(layer for layer in exact.values() if layer.ndim == 3), exact)
    if base is not None:
        assert found.alignment is not None
        torch.testing.assert_close(found.alignment, -(to_units(whole, 1) @ to_units(base.double(), 0)), **CLOSE)
    check_classes(found, exact, base)


def check_positions(found: Tensor, placed: Tensor, exact: dict[str, Tensor]) -> None:
    """Compare the products at positions with those of the rows in units of their length."""
    channels = next(iter(exact.values())).shape[1]
    units = to_units(placed.flatten(1), 1).view(len(placed), placed.shape[1] * channels, -1)
    units = units - units.mean(0)
    torch.testing.assert_close(found, torch.einsum("nwp,mwp->pnm", units, units), **CLOSE)


def check_classes(found: Evidence, exact: dict[str, Tensor], base: Tensor | None) -> None:
    """Compare leans, looks and fits with their definitions."""
    name = [name for name, layer in exact.items() if layer.ndim > 2][-1]
    last = exact[name].flatten(2)
    if last.shape[1] < module.MIN_CLASSES:
        assert found.leans is None
        return
    assert found.leans is not None
    sums = last.sum(2)
    torch.testing.assert_close(found.leans, to_units(sums - sums.mean(1, keepdim=True), 1), **CLOSE)
    units = to_units(last - last.mean(2, keepdim=True), 2)
    leaning = find_leaning(found.leans)
    likeness = torch.einsum("ncw,mcw->cnm", units, units)
    for number in range(last.shape[1]):
        members = leaning[:, number]
        alike = likeness[number][:, members].sum(1) - likeness[number].diagonal()
        expected = (alike / (members.sum() - 1)).where(members & (members.sum() > 1), torch.nan)
        assert found.looks is not None
        torch.testing.assert_close(found.looks[:, number], expected, **CLOSE)
    if base is not None:
        start = sum(prod(layer.shape[1:]) for layer in list(exact.values())[: list(exact).index(name)])
        model = base[start : start + last[0].numel()].double().view(last.shape[1:])
        model = to_units(model - model.mean(1, keepdim=True), 1)
        assert found.fits is not None
        torch.testing.assert_close(found.fits, torch.einsum("ncw,cw->nc", units, model), **CLOSE)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000), block=st.sampled_from([1, 4 * ROWS, 25 * ROWS, 1 << 19]), based=st.booleans())
@pytest.mark.parametrize("model", MODELS)
def test_evidence_is_that_of_its_definition(model: str, seed: int, block: int, based: bool) -> None:
    layers = make_rows(MODELS[model], seed)
    layers[next(iter(layers))][seed % ROWS] = 0  # a row of zeros in the first layer
    updates = Updates.from_layers(layers)
    base = torch.randn(updates.layout.width, generator=stream(seed, "base")) if based else None
    recalled = recall_noise(MODELS[model], gather_evidence(updates, None, None)) if seed % 2 else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ELEMENTS", block)
        found = gather_evidence(updates, base, recalled)
    check_evidence(found, layers, base, recalled)


@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("model", ["dense", "positions", "wide outputs"])
def test_a_row_of_any_length_blinds_nobody(model: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 30 * ROWS)
    layers = make_rows(MODELS[model], 1)
    for layer in layers.values():
        layer[3] *= factor
    updates = Updates.from_layers(layers)
    base = torch.randn(updates.layout.width, generator=stream(1, "base"))
    check_evidence(gather_evidence(updates, base, None), layers, base, None)


@pytest.mark.parametrize("block", [30 * ROWS, 1 << 19], ids=["parts of classes", "whole classes"])
def test_how_far_a_class_is_raised_hides_no_features(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    layers = make_rows(MODELS["wide outputs"], 2)
    raised = {name: layer + 5.0 * (name == "last") for name, layer in layers.items()}  # rounds 0.01 to four digits
    base = torch.randn(Updates.from_layers(layers).layout.width, generator=stream(2, "base")) + 3
    found = gather_evidence(Updates.from_layers(raised), base, None)
    last, model = raised["last"].double(), base[-240:].double().view(4, 60)
    units, known = (to_units(each - each.mean(-1, keepdim=True), -1) for each in (last, model))
    torch.testing.assert_close(found.fits, torch.einsum("ncw,cw->nc", units, known), rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_of_other_types_are_compared_as_precisely(dtype: torch.dtype) -> None:
    layers = {name: layer.to(dtype) for name, layer in make_rows(MODELS["positions"], 3).items()}
    check_evidence(gather_evidence(Updates.from_layers(layers), None, None), layers, None, None)


def test_models_are_compared_as_the_rows_of_their_differences() -> None:
    layers = make_rows(MODELS["positions"], 4)
    layers["last"][2] *= 1e12
    updates = Updates.from_layers(layers)
    origin = updates.layout.split(torch.zeros(updates.layout.width))
    models = [{name: layer[row] for name, layer in layers.items()} for row in range(ROWS)]
    values = Differences(origin, models, updates.squared_norms.sqrt(), updates.layout)
    examples = torch.ones(ROWS, dtype=torch.float64)
    received = Updates(values, examples, updates.clients, updates.layout, finite=True)
    base = torch.randn(updates.layout.width, generator=stream(4, "base"))
    check_evidence(gather_evidence(received, base, None), layers, base, None)
