import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, linear, relu

from snowball.errors import SettingError
from snowball.models import MODELS, ModelInfo, build_model
from snowball.rng import stream

DIGITS, PHOTOS, TEXTS = (1, 28, 28), (3, 32, 32), (25, 300)
SHAPES = {
    "cnn": DIGITS,
    "cnn-published": DIGITS,
    "cnn-quarter": DIGITS,
    "cifar-cnn": PHOTOS,
    "cifar-cnn-quarter": PHOTOS,
    "gru": TEXTS,
    "gru-quarter": TEXTS,
}


def fresh(name: str, seed: int = 0) -> nn.Module:
    return build_model(name, SHAPES[name], 10, stream(seed))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn", DIGITS, 10, 32 * 1 * 25 + 64 * 32 * 25 + 256 * 64 * 5 * 5 + 10 * 256),  # 28 -> 26 -> 13 -> 11 -> 5
        ("cnn", DIGITS, 62, 32 * 1 * 25 + 64 * 32 * 25 + 256 * 64 * 5 * 5 + 62 * 256),
        # 28 -> 26 -> 14 -> 12 -> 7
        ("cnn-published", DIGITS, 10, 32 * 1 * 25 + 64 * 32 * 25 + 128 * 64 * 7 * 7 + 10 * 128),
        ("cnn-published", DIGITS, 62, 32 * 1 * 25 + 64 * 32 * 25 + 128 * 64 * 7 * 7 + 62 * 128),
        ("cnn-quarter", DIGITS, 10, 8 * 1 * 25 + 16 * 8 * 25 + 64 * 16 * 5 * 5 + 10 * 64),
        (
            "cifar-cnn",
            PHOTOS,
            10,
            9 * (3 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256) + 256 * 10,
        ),
        (
            "cifar-cnn-quarter",
            PHOTOS,
            10,
            9 * (3 * 16 + 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 64 * 10,
        ),
        ("gru", TEXTS, 2, 2 * 3 * 16 * (300 + 16) + 32 * 256 + 256 * 2),  # three gates in two directions
        ("gru", (7, 50), 2, 2 * 3 * 16 * (50 + 16) + 32 * 256 + 256 * 2),
        ("gru-quarter", TEXTS, 2, 2 * 3 * 4 * (300 + 4) + 8 * 64 + 64 * 2),
    ],
)
def test_parameters_and_outputs_are_as_many_as_computed_by_hand(
    name: str, shape: tuple[int, ...], classes: int, count: int
) -> None:
    model = build_model(name, shape, classes, stream(0, "model"))
    assert sum(weight.numel() for weight in model.parameters()) == count
    assert model(torch.zeros(3, *shape)).shape == (3, classes)


@pytest.mark.parametrize("name", SHAPES)
def test_the_documentation_counts_the_parameters(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "simulator.md"
    (row,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |"))
    cases = {DIGITS: [(DIGITS, 10), (DIGITS, 62)], PHOTOS: [(PHOTOS, 10)], TEXTS: [(TEXTS, 2), ((25, 50), 2)]}
    models = (build_model(name, shape, classes, stream(0)) for shape, classes in cases[SHAPES[name]])
    counts = [f"{sum(weight.numel() for weight in model.parameters()):,}" for model in models]
    assert re.findall(r"\d+(?:,\d{3})+", row) == counts


def test_other_images_fit_too() -> None:
    for name in ("cnn", "cnn-published", "cifar-cnn"):
        assert build_model(name, (3, 32, 32), 10, stream(0))(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
        assert build_model(name, (1, 10, 40), 10, stream(0))(torch.zeros(2, 1, 10, 40)).shape == (2, 10)


def test_the_published_network_pads_its_poolings() -> None:
    model = fresh("cnn-published")
    first, second, third, last = (nn.Parameter(weight) for weight in model.state_dict().values())
    images = torch.randn(4, *DIGITS, generator=stream(1))
    pool = nn.MaxPool2d(2, padding=1)
    maps = pool(relu(conv2d(pool(relu(conv2d(images, first, padding=1))), second, padding=1)))
    assert maps.shape == (4, 64, 7, 7)
    torch.testing.assert_close(model(images), linear(relu(linear(maps.flatten(1), third)), last))


LAYERS = {
    "cnn": ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"],
    "cifar-cnn": [*(f"conv{number}.weight" for number in range(1, 7)), "fc.weight"],
    "gru": [
        "gru.weight_ih_l0",
        "gru.weight_hh_l0",
        "gru.weight_ih_l0_reverse",
        "gru.weight_hh_l0_reverse",
        "fc1.weight",
        "fc2.weight",
    ],
}


@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_named_in_order_and_there_are_no_biases_or_buffers(name: str) -> None:
    model = fresh(name)
    names = [key for key, _ in model.named_parameters()]
    assert names == LAYERS[name.removesuffix("-quarter").removesuffix("-published")]
    assert list(model.state_dict()) == names
    assert all(weight.requires_grad and weight.device.type == "cpu" for weight in model.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = fresh(name, 1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again, other = (fresh(name, seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", ["cnn", "cnn-published", "cifar-cnn", "gru"])
def test_weights_are_normal_with_the_variance_of_kaiming(name: str) -> None:
    for key, weight in fresh(name).state_dict().items():
        fan_in = weight[0].numel()
        scaled = weight * (fan_in / 2) ** 0.5
        assert scaled.std().item() == pytest.approx(1, abs=0.1), key
        if weight.numel() > 10_000:
            assert (scaled**4).mean().item() == pytest.approx(3, rel=0.1), key  # of a uniform: 1.8


def test_what_is_drawn_is_what_a_generator_gives_layer_by_layer() -> None:
    rng = stream(5, "model")
    for weight in build_model("cnn-quarter", DIGITS, 10, stream(5, "model")).parameters():
        expected = nn.init.kaiming_normal_(torch.empty(weight.shape), nonlinearity="relu", generator=rng)
        assert torch.equal(weight, expected)


@pytest.mark.parametrize("name", ["cnn-quarter", "cnn-published", "cifar-cnn-quarter"])
def test_scores_are_not_squashed_and_nothing_but_relu_bends_them(name: str) -> None:
    model = fresh(name).eval()
    inputs = torch.randn(4, *SHAPES[name], generator=stream(1))
    scores = model(inputs)
    assert (scores < 0).any()
    torch.testing.assert_close(model(4 * inputs), 4 * scores)  # without biases, what goes in scales what comes out


def test_the_network_for_photos_drops_while_it_is_trained_alone() -> None:
    model, inputs = fresh("cifar-cnn-quarter"), torch.randn(4, *PHOTOS, generator=stream(1))
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_an_unknown_model_and_too_small_an_image_are_refused() -> None:
    with pytest.raises(SettingError, match="'cnn-quater' is not a model; did you mean 'cnn-quarter'"):
        build_model("cnn-quater", DIGITS, 10, stream(0))
    with pytest.raises(SettingError, match="'perceptron' is not a model; there are cnn, cnn-published, cnn-quarter"):
        build_model("perceptron", DIGITS, 10, stream(0))
    with pytest.raises(SettingError, match="9x28 is too small"):
        build_model("cnn", (1, 9, 28), 10, stream(0))
    with pytest.raises(SettingError, match="5x28 is too small"):
        build_model("cnn-published", (1, 5, 28), 10, stream(0))
    assert build_model("cnn-published", (1, 6, 28), 10, stream(0))(torch.zeros(2, 1, 6, 28)).shape == (2, 10)
    with pytest.raises(SettingError, match="3x32 is too small"):
        build_model("cifar-cnn", (1, 3, 32), 10, stream(0))


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("cnn", TEXTS, "cnn takes samples of (channels, height, width), not of shape (25, 300)"),
        ("cifar-cnn-quarter", (9,), "cifar-cnn-quarter takes samples of (channels, height, width), not of shape (9,)"),
        ("gru", DIGITS, "gru takes samples of (tokens, width), not of shape (1, 28, 28)"),
    ],
)
def test_samples_of_another_kind_are_refused(name: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        build_model(name, shape, 10, stream(0))
    assert str(caught.value) == sentence


class Own(nn.Module):
    """A user's model, whose layers draw their weights."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(input_shape[0], 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, classes)


def test_any_module_is_made_with_the_weights_that_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "mine", ModelInfo("mine", "", Own))
    before = torch.get_rng_state()
    one, same, other = (build_model("mine", (6,), 3, stream(seed)).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["first.bias"], other["first.bias"])
    assert one["norm.running_var"].tolist() == one["norm.weight"].tolist() == [1] * 4


def test_a_generator_moves_on_with_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "mine", ModelInfo("mine", "", Own))
    rng = stream(1)
    one, next_one = (build_model("mine", (6,), 3, rng).state_dict() for _ in range(2))
    assert not torch.equal(one["first.weight"], next_one["first.weight"])


def test_parameters_that_are_not_trained_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def frozen(input_shape: tuple[int, ...], classes: int) -> nn.Module:
        model = Own(input_shape, classes)
        model.last.bias.requires_grad_(False)
        return model

    monkeypatch.setitem(MODELS, "mine", ModelInfo("mine", "", frozen))
    with pytest.raises(SettingError, match=r"has parameters that are not trained, last\.bias: make them buffers$"):
        build_model("mine", (6,), 3, stream(0))


OTHER = """
from torch import nn

import snowball.sim.loop


class Line(nn.Linear):
    def __init__(self, input_shape, classes):
        super().__init__(input_shape[0], classes)
"""

SCRIPT = """
import other

from snowball.models import MODELS, CNN, build_model
from snowball.rng import stream

assert type(build_model("line", (3,), 2, stream(0))) is other.Line
assert type(build_model("cnn", (1, 28, 28), 2, stream(0))) is CNN
assert MODELS["line"].summary == "other:Line"
"""


def test_a_package_brings_its_models_but_cannot_take_a_name(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    metadata = tmp_path / "other-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[snowball.models]\nline = other:Line\ncnn = other:Line\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
