import pytest
import torch

from snowball.errors import SettingError
from snowball.models import MODELS, build
from snowball.rng import stream


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("cnn", 10, 32 * 1 * 25 + 64 * 32 * 25 + 256 * 64 * 5 * 5 + 10 * 256),  # 28 -> 26 -> 13 -> 11 -> 5
        ("cnn", 62, 32 * 1 * 25 + 64 * 32 * 25 + 256 * 64 * 5 * 5 + 62 * 256),
        ("cnn-quarter", 10, 8 * 1 * 25 + 16 * 8 * 25 + 64 * 16 * 5 * 5 + 10 * 64),
    ],
)
def test_parameters_and_outputs_are_as_many_as_computed_by_hand(name: str, classes: int, count: int) -> None:
    model = build(name, (1, 28, 28), classes, stream(0, "model"))
    assert sum(weight.numel() for weight in model.parameters()) == count
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, classes)


def test_the_papers_network_has_464160_parameters() -> None:
    model = build("cnn", (1, 28, 28), 10, stream(0, "model"))
    assert sum(weight.numel() for weight in model.parameters()) == 464_160


def test_other_images_fit_too() -> None:
    assert build("cnn", (3, 32, 32), 10, stream(0))(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert build("cnn", (1, 10, 40), 10, stream(0))(torch.zeros(2, 1, 10, 40)).shape == (2, 10)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_named_in_order_and_there_are_no_biases_or_buffers(name: str) -> None:
    model = build(name, (1, 28, 28), 10, stream(0))
    assert [key for key, _ in model.named_parameters()] == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    assert list(model.state_dict()) == [key for key, _ in model.named_parameters()]
    assert all(weight.requires_grad and weight.device.type == "cpu" for weight in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = build(name, (1, 28, 28), 10, stream(1)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again, other = (build(name, (1, 28, 28), 10, stream(seed)).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_weights_are_normal_with_the_variance_of_kaiming() -> None:
    for key, weight in build("cnn", (1, 28, 28), 10, stream(0)).state_dict().items():
        fan_in = weight[0].numel()
        scaled = weight * (fan_in / 2) ** 0.5
        assert scaled.std().item() == pytest.approx(1, abs=0.1), key
        if weight.numel() > 10_000:
            assert (scaled**4).mean().item() == pytest.approx(3, rel=0.1), key  # of a uniform: 1.8


def test_scores_are_not_squashed_and_nothing_but_relu_bends_them() -> None:
    model = build("cnn-quarter", (1, 28, 28), 10, stream(0))
    inputs = torch.randn(4, 1, 28, 28, generator=stream(1))
    scores = model(inputs)
    assert (scores < 0).any()
    torch.testing.assert_close(model(4 * inputs), 4 * scores)  # without biases, what goes in scales what comes out


def test_an_unknown_model_and_too_small_an_image_are_refused() -> None:
    with pytest.raises(SettingError, match="'cnn-quater' is not a model; did you mean 'cnn-quarter'"):
        build("cnn-quater", (1, 28, 28), 10, stream(0))
    with pytest.raises(SettingError, match="'resnet' is not a model; there are cnn, cnn-quarter"):
        build("resnet", (1, 28, 28), 10, stream(0))
    with pytest.raises(SettingError, match="9x28 is too small"):
        build("cnn", (1, 9, 28), 10, stream(0))
