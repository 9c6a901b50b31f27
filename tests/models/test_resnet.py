"""Residual networks beside the same networks in plain NumPy."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import snowball
from snowball import Context, SnowballPlus, Updates
from snowball.buffers import select_buffers
from snowball.defenses.snowball.layers import select_voting_layers
from snowball.defenses.snowball_plus.evidence import find_placed_layer
from snowball.layout import Layout, select_parameters
from snowball.models import MODELS, build_model
from snowball.models.resnet import NORMS, ResNet, build_resnet
from snowball.rng import stream
from snowball.sim.cohort import draw_cohort
from snowball.sim.engines.base import train_cohort
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.run import run_experiment

Array = npt.NDArray[np.float64]

NAMES = ("resnet8", "resnet8-bn", "resnet18", "resnet18-bn")
DIGITS, PHOTOS = (1, 28, 28), (3, 32, 32)
WIDTHS = {"resnet8": (16, 32, 64), "resnet18": (64, 128, 256, 512)}


def convolve(inputs: Array, weight: Array, stride: int) -> Array:
    """The sum over channels and a window of products; a 3x3 window is padded by 1, a 1x1 window is not."""
    side = weight.shape[-1]
    border = side // 2
    padded = np.pad(inputs, ((0, 0), (0, 0), (border, border), (border, border)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight)


def normalise(maps: Array, weight: Array, bias: Array, norm: str) -> Array:
    """Zero mean and unit variance: of each image's two halves of the maps, or of each map over all images."""
    count, channels, *_ = maps.shape
    parts = maps.reshape(count, 2, -1) if norm == "group" else maps.transpose(1, 0, 2, 3).reshape(channels, -1)
    parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    if norm == "group":
        whole = parts.reshape(maps.shape)
    else:
        whole = parts.reshape(channels, count, *maps.shape[2:]).transpose(1, 0, 2, 3)
    return whole * weight[:, None, None] + bias[:, None, None]


def compute_scores(weights: dict[str, Array], images: Array, blocks: int, norm: str) -> Array:
    """The scores of a network with so many blocks of two convolutions."""

    def normed(maps: Array, name: str) -> Array:
        return normalise(maps, weights[f"{name}.weight"], weights[f"{name}.bias"], norm)

    maps = np.maximum(normed(convolve(images, weights["conv.weight"], 1), "norm"), 0)
    for number in range(blocks):
        own, stride = f"blocks.{number}", 1
        if weights[f"{own}.conv1.weight"].shape[0] > maps.shape[1]:
            stride = 2
        inner = np.maximum(normed(convolve(maps, weights[f"{own}.conv1.weight"], stride), f"{own}.norm1"), 0)
        inner = normed(convolve(inner, weights[f"{own}.conv2.weight"], 1), f"{own}.norm2")
        if stride == 2:
            maps = normed(convolve(maps, weights[f"{own}.shortcut.0.weight"], stride), f"{own}.shortcut.1")
        maps = np.maximum(maps + inner, 0)
    return maps.mean((2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]


def compute_loss(scores: Array, labels: list[int]) -> float:
    shifted = scores - scores.max(1, keepdims=True)
    likelihoods = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -float(np.mean([row[label] for row, label in zip(likelihoods, labels, strict=True)]))


def make_random(norm: str, widths: tuple[int, ...], blocks: int, shape: tuple[int, int, int]) -> nn.Module:
    """A network in float64 whose every number is random, those of the normalisations too."""
    model = build_resnet(widths, blocks, norm, shape, 3).double()
    rng = stream(7, norm)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) / max(1, parameter[0].numel()) ** 0.5)
    return model


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("widths", "blocks", "shape"), [((4, 6, 8), 1, (1, 9, 7)), ((4, 8), 2, (3, 8, 6))])
def test_scores_and_gradients_are_those_of_plain_numpy(
    norm: str, widths: tuple[int, ...], blocks: int, shape: tuple[int, int, int]
) -> None:
    model, labels = make_random(norm, widths, blocks, shape), [0, 2, 1, 1, 0]
    images = torch.randn(5, *shape, generator=stream(8)).double()
    weights = {name: each.detach().numpy() for name, each in model.named_parameters()}
    evaluate = partial(compute_scores, images=images.numpy(), blocks=blocks * len(widths), norm=norm)
    scores = model.train()(images)
    np.testing.assert_allclose(scores.detach().numpy(), evaluate(weights), rtol=1e-9, atol=1e-9)
    torch.autograd.backward(cross_entropy(scores, torch.tensor(labels)))
    for name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=stream(9, name)).double().numpy()
        losses = [
            compute_loss(evaluate({**weights, name: weights[name] + step * direction}), labels)
            for step in (1e-6, -1e-6)
        ]
        assert parameter.grad is not None
        slope = float((parameter.grad.numpy() * direction).sum())
        assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-7), name


def test_the_running_statistics_are_those_of_the_maps() -> None:
    model = make_random("batch", (4, 8), 1, (1, 8, 8))
    images = torch.randn(6, 1, 8, 8, generator=stream(1)).double()
    model.train()(images)
    maps = convolve(images.numpy(), model.conv.weight.detach().numpy(), 1)
    np.testing.assert_allclose(model.norm.running_mean.numpy(), 0.1 * maps.mean((0, 2, 3)))
    np.testing.assert_allclose(model.norm.running_var.numpy(), 0.9 + 0.1 * maps.var((0, 2, 3), ddof=1))


def count_by_hand(widths: tuple[int, ...], blocks: int, channels: int, classes: int) -> int:
    """The first convolution, then the blocks; a map has two numbers of its normalisation."""
    total = 9 * channels * widths[0] + 2 * widths[0]
    before = widths[0]
    for width in widths:
        for _ in range(blocks):
            total += 9 * width * (before + width) + 4 * width
            total += before * width + 2 * width if before != width else 0
            before = width
    return total + classes * (before + 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "classes"), [(DIGITS, 10), (DIGITS, 62), (PHOTOS, 10), (PHOTOS, 100)])
def test_parameters_are_as_many_as_computed_by_hand(name: str, shape: tuple[int, ...], classes: int) -> None:
    model = build_model(name, shape, classes, stream(0))
    widths = WIDTHS[name.removesuffix("-bn")]
    expected = count_by_hand(widths, 1 if len(widths) == 3 else 2, shape[0], classes)
    assert sum(weight.numel() for weight in model.parameters()) == expected


def test_the_counts_for_cifar_are_those_that_are_known() -> None:
    counts = {name: sum(map(torch.numel, build_model(name, PHOTOS, 10, stream(0)).parameters())) for name in NAMES}
    assert counts == {"resnet8": 78_042, "resnet8-bn": 78_042, "resnet18": 11_173_962, "resnet18-bn": 11_173_962}


def test_the_documentation_counts_the_parameters() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    for name in ("resnet8", "resnet18"):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        counts = [
            sum(map(torch.numel, build_model(name, shape, 10, stream(0)).parameters())) for shape in (DIGITS, PHOTOS)
        ]
        assert re.findall(r"\d+(?:,\d{3})+", row) == [f"{count:,}" for count in counts]


def test_convolutions_and_blocks_are_those_of_the_names() -> None:
    for name, convolutions in (("resnet8", 7), ("resnet18", 17)):
        model = build_model(name, PHOTOS, 10, stream(0))
        kernels = [module.kernel_size for module in model.modules() if isinstance(module, nn.Conv2d)]
        assert kernels.count((3, 3)) == convolutions
        assert kernels.count((1, 1)) == len(WIDTHS[name]) - 1


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_normal_with_the_variance_of_kaiming_and_norms_start_as_the_identity(name: str) -> None:
    model = build_model(name, PHOTOS, 10, stream(0))
    for key, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            scaled = module.weight * (module.weight[0].numel() / 2) ** 0.5
            assert scaled.std().item() == pytest.approx(1, abs=0.15), key
        elif isinstance(module, nn.GroupNorm | nn.BatchNorm2d):
            assert set(module.weight.tolist()) == {1}
            assert set(module.bias.tolist()) == {0}
    assert set(model.fc.bias.tolist()) == {0}


def test_weights_come_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (build_model("resnet8-bn", DIGITS, 10, stream(seed)).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["conv.weight"], other["conv.weight"])


def test_only_batch_normalisation_has_buffers() -> None:
    for name in NAMES:
        model = build_model(name, DIGITS, 10, stream(0))
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        assert len(select_buffers(model)) == 3 * len(norms)
        assert bool(norms) == name.endswith("-bn")


def test_the_first_and_the_last_weight_layer_vote_and_no_layer_sees_positions() -> None:
    for name in NAMES:
        layout = Layout.from_tensors(select_parameters(build_model(name, DIGITS, 10, stream(0))))
        assert select_voting_layers(layout, "ends") == ("conv.weight", "fc.weight")
        assert not any("norm" in layer or layer.endswith("shortcut.1.weight") for layer in layout.weights)
        assert find_placed_layer(layout) is None


def test_snowball_plus_judges_without_positions() -> None:
    layout = Layout.from_tensors(select_parameters(build_model("resnet8", DIGITS, 10, stream(0))))
    rows = 0.01 * torch.randn(20, layout.width, generator=stream(2))
    rows[:4] += 0.01 * torch.randn(layout.width, generator=stream(3))  # four move together
    updates = Updates(rows, torch.full((20,), 10.0), tuple(map(str, range(10, 30))), layout)
    verdict = SnowballPlus()(updates, Context(round=1, rounds=10, base=rows.mean(0)))
    assert not verdict.elected[:4].any()
    assert verdict.elected[4:].all()


def test_a_map_must_be_halved_by_groups() -> None:
    with pytest.raises(ValueError, match="must be divisible by num_groups"):
        ResNet((3, 4), 1, "group", DIGITS, 10)


def strip_times(records: Any) -> list[Any]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.mark.parametrize("name", ["resnet8", "resnet8-bn"])
def test_a_short_run_is_the_same_with_every_engine_and_after_a_resume(name: str, tmp_path: Path) -> None:
    images = torch.randn(60, 1, 8, 8, generator=stream(4))
    settings = {"rounds": 2, "cohort": 4, "data.clients": 4, "data.partition": "iid", "training.epochs": 1}
    named = {"model.name": name, "defense.name": "snowball-plus", "attack.malicious": 0.25}
    experiment = snowball.load_experiment("demo", settings | named, data=(images, torch.arange(60) % 4))
    federation = Federation.build(experiment)
    records = strip_times(simulate(federation, SerialEngine))
    assert [record["round"] for record in records] == [1, 2]
    rounds = run_experiment(experiment, tmp_path / "run", partial(ProcessEngine, workers=2))
    first = next(rounds)
    rounds.close()
    assert strip_times([first, *run_experiment(experiment, tmp_path / "run", resume=True)]) == records
    cohort, state = draw_cohort(experiment, 1), build_first_state(federation)
    rows = [train_cohort(engine(federation), state, cohort, 1) for engine in (SerialEngine, VmapEngine)]
    torch.testing.assert_close(rows[1].rows, rows[0].rows, rtol=0, atol=1e-4)
    assert len(rows[1].buffers[0]) == (27 if name == "resnet8-bn" else 0)


def test_their_summaries_say_how_they_normalise() -> None:
    assert all(("batch" if name.endswith("-bn") else "group") in MODELS[name].summary for name in NAMES)
