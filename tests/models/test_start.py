import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from snowball.data import load_dataset, locate_dataset
from snowball.errors import SettingError
from snowball.models import build_model
from snowball.models.start import (
    ENDING,
    STARTS,
    compute_start_sha256,
    list_starts,
    load_start,
    locate_start,
    pack_start,
)
from snowball.rng import stream

DIGITS = (1, 28, 28)
STARTS_OF_DIGITS = {"mnist-cnn-quarter": "mnist-sample", "fashion-mnist-cnn-quarter": "fashion-mnist"}


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def read_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def save(path: Path, tensors: dict[str, Tensor]) -> str:
    save_file(tensors, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_shipped_start_is_listed_and_small() -> None:
    assert set(list_starts()) == set(STARTS_OF_DIGITS)
    for name in list_starts():
        content = locate_start(name).read_bytes()
        assert len(content) < 200_000
        assert compute_start_sha256(name) == hashlib.sha256(content).hexdigest()
        assert STARTS.joinpath(f"{name}{ENDING}").is_file()


@pytest.mark.parametrize("name", STARTS_OF_DIGITS)
def test_a_shipped_start_knows_its_data_and_an_untrained_model_does_not(name: str) -> None:
    if not locate_dataset(STARTS_OF_DIGITS[name]):
        pytest.skip(f"{STARTS_OF_DIGITS[name]} is neither in $SNOWBALL_DATA nor in the cache")
    data = load_dataset(STARTS_OF_DIGITS[name])
    test = data.test[torch.arange(1000)]
    model = build_model("cnn-quarter", DIGITS, 10, stream(0))
    accuracies = []
    for _ in range(2):
        with torch.no_grad():
            correct = model.eval()(data.normalise(test.inputs)).argmax(1) == test.labels
        accuracies.append(float(correct.float().mean()))
        load_start(model, name, compute_start_sha256(name))
    assert accuracies[0] < 0.3
    assert accuracies[1] > 0.8


def test_weights_and_buffers_are_those_of_the_file(tmp_path: Path) -> None:
    trained, fresh = make_network(), make_network()
    trained(torch.randn(8, 3, generator=stream(1)))  # moves the running statistics
    with torch.no_grad():
        trained[0].weight.add_(1)
    (tmp_path / "start.safetensors").write_bytes(pack_start(trained))
    start = str(tmp_path / "start.safetensors")
    load_start(fresh, start, compute_start_sha256(start))
    found, expected = read_tensors(fresh), read_tensors(trained)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert expected["1.num_batches_tracked"] == 1


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_become_the_models(tmp_path: Path, kind: torch.dtype) -> None:
    model, tensors = make_network(), read_tensors(make_network())
    path = tmp_path / "start.safetensors"
    kept = {name: each.to(kind) if each.is_floating_point() else each for name, each in tensors.items()}
    load_start(model, str(path), save(path, kept))
    assert model[0].weight.dtype == torch.float32
    assert torch.equal(model[0].weight, kept["0.weight"].float())


Change = Callable[[dict[str, Tensor]], object]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda held: held.pop("0.bias"), "it lacks 0.bias"),
        (lambda held: held.update(extra=torch.zeros(1)), "it has extra, which the model has not"),
        (lambda held: held.update({"0.bias": torch.zeros(3)}), "0.bias has the shape (3,), and (2,) in the model"),
        (lambda held: held.update({"0.bias": torch.zeros(2).int()}), "0.bias is int32, and float32 in the model"),
        (lambda held: held["0.weight"][1].fill_(torch.nan), "0.weight has numbers that are not finite"),
        (
            lambda held: held.update({"0.bias": torch.full((2,), 1e300, dtype=torch.float64)}),
            "0.bias has numbers that are not",
        ),
        (
            lambda held: [held.pop(name) for name in list(held)[1:]],
            "it lacks 0.bias, 1.weight, 1.bias and 3 more",
        ),
    ],
)
def test_a_file_of_another_model_is_refused_and_changes_nothing(tmp_path: Path, change: Change, sentence: str) -> None:
    model, tensors = make_network(), read_tensors(make_network())
    change(tensors)
    path = tmp_path / "start.safetensors"
    with pytest.raises(SettingError) as caught:
        load_start(model, str(path), save(path, tensors))
    assert str(caught.value).startswith(f"model.start = {str(path)!r} does not fit the model: {sentence}")
    assert all(torch.equal(each, read_tensors(make_network())[name]) for name, each in model.state_dict().items())


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "start.safetensors"
    sha256 = save(path, read_tensors(make_network()))
    save(path, {name: tensor + 1 for name, tensor in read_tensors(make_network()).items()})
    with pytest.raises(SettingError, match=f"and model.start_sha256 is {sha256}: the file was changed; leave"):
        load_start(make_network(), str(path), sha256)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\xff" * 64, b"\x80\x04K\x01."])  # the last is a pickle
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "start.safetensors"
    path.write_bytes(content)
    with pytest.raises(SettingError, match="is not a file of safetensors: SafetensorError"):
        load_start(make_network(), str(path), compute_start_sha256(str(path)))


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "start.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 24)
    with pytest.raises(SettingError, match="it has more than 1,048,712 bytes for 17 numbers"):
        load_start(make_network(), str(path), None)


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        ("mnist-cnn-quater", "is neither a shipped start nor a file; did you mean 'mnist-cnn-quarter'?"),
        ("/nowhere", "is neither a shipped start nor a file; there are fashion-mnist-cnn-quarter, mnist-cnn-quarter"),
        ("\0", "is neither a shipped start nor a file; there are fashion-mnist-cnn-quarter, mnist-cnn-quarter"),
        (".", "is neither a shipped start nor a file; there are fashion-mnist-cnn-quarter, mnist-cnn-quarter"),
    ],
)
def test_a_start_that_does_not_exist_is_refused(start: str, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        compute_start_sha256(start)
    assert str(caught.value).endswith(sentence)
