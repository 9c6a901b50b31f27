import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from snowball.data import Split, load_dataset, locate_dataset
from snowball.data.io.locate import hash_splits
from snowball.data.sets.mnist import read_arrays


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "make_mnist_sample.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def toy(count: int) -> Split:
    return Split(torch.arange(count * 784).view(count, 1, 28, 28).to(torch.uint8), torch.arange(count) % 10)


def test_the_choice_is_balanced_without_repeats_and_repeatable(script: ModuleType) -> None:
    split = Split(torch.arange(100).view(100, 1, 1, 1).to(torch.uint8), torch.arange(100) % 10)
    chosen = script.balanced(split, 6, "train")
    assert chosen.labels.bincount().tolist() == [6] * 10
    assert len(chosen.inputs.unique()) == 60
    assert torch.equal(chosen.inputs.flatten() % 10, chosen.labels)
    assert torch.equal(chosen.inputs, script.balanced(split, 6, "train").inputs)


def test_writing_is_lossless_and_gives_the_same_bytes_twice(script: ModuleType, tmp_path: Path) -> None:
    train, test = toy(30), toy(20)
    for name in ("one.npz", "two.npz"):
        script.write(tmp_path / name, train, test)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    images, labels, *_ = read_arrays(tmp_path / "one.npz")
    assert torch.equal(torch.tensor(images), train.inputs[:, 0])
    assert labels.tolist() == train.labels.tolist()


def test_the_shipped_sample_is_what_the_script_makes(script: ModuleType) -> None:
    if not locate_dataset("mnist"):
        pytest.skip("mnist is neither in $SNOWBALL_DATA nor in the cache")
    mnist = load_dataset("mnist")
    train = script.balanced(mnist.train, script.TRAIN_PER_CLASS, "train")
    test = script.balanced(mnist.test, script.TEST_PER_CLASS, "test")
    assert hash_splits(train, test) == load_dataset("mnist-sample").provenance["sha256"]
