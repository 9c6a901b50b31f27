import gzip
import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from snowball.data import DATASETS, fetch_dataset, load_dataset, locate_dataset
from snowball.data.images import ARRAY_NAMES
from snowball.data.sets.mnist import FASHION_MNIST, IDX_FILES, MNIST, MNISTLoader
from snowball.errors import DataError, SettingError

Arrays = dict[str, np.ndarray]


def toy(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 20, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 5, dtype=np.uint8),
    }


def write_idx(folder: Path, arrays: Arrays, suffix: str = ".gz") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, key in zip(IDX_FILES, ARRAY_NAMES, strict=True):
        array = arrays[key]
        data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        (folder / f"{file}{suffix}").write_bytes(gzip.compress(data, mtime=0) if suffix else data)


def offline(info: MNISTLoader, **changes: object) -> MNISTLoader:
    return replace(info, home="http://127.0.0.1:1/", **changes)


@pytest.fixture
def served(serve: Callable[[Path], str], tmp_path: Path) -> MNISTLoader:
    """A small MNIST that is served from this machine."""
    files = tmp_path / "served"
    write_idx(files, toy())
    sha256 = tuple(hashlib.sha256((files / f"{file}.gz").read_bytes()).hexdigest() for file in IDX_FILES)
    return replace(MNIST, home=serve(files), sha256=sha256)


def test_the_table_names_its_entries() -> None:
    assert list(DATASETS) == [
        "mnist-sample",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "femnist",
        "letters",
        "sent140",
        "sent140-users",
    ]
    assert all(info.name == name and info.summary for name, info in DATASETS.items())
    assert DATASETS["mnist-sample"].needs == ""
    assert "t10k-labels-idx1-ubyte.gz from https://" in DATASETS["mnist"].needs


def test_the_sample_is_balanced_small_and_always_the_same(folder: Path) -> None:
    data = load_dataset("mnist-sample")
    assert data.train.labels.bincount().tolist() == [1200] * 10
    assert data.test.labels.bincount().tolist() == [200] * 10
    assert data.train.inputs.shape == (12_000, 1, 28, 28)
    assert (data.train.inputs.dtype, data.train.labels.dtype) == (torch.uint8, torch.int64)
    assert not torch.equal(data.train.labels, data.train.labels.sort().values)
    assert data.provenance == {
        "source": "sample",
        "file": "mnist.npz",
        "complete": False,
        "train": 12_000,
        "test": 2_000,
        "sha256": "a651c7c6fa30695684f2bbdd634a22df1b0ba48e893a8fda6e107bc76dfd12f5",
    }
    location = fetch_dataset("mnist-sample")
    assert location == locate_dataset("mnist-sample")
    assert location.path.stat().st_size <= 3_000_000
    assert (location.path.parent / "README.md").is_file()


@pytest.mark.parametrize(("info", "white"), [(MNIST, 2.8215), (FASHION_MNIST, 2.2278)])
def test_a_white_pixel_is_the_published_one(info: MNISTLoader, white: float, folder: Path) -> None:
    np.savez(folder / f"{info.name.replace('-', '_')}.npz", **toy())
    data = info.load()
    pixel = data.normalise(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8))
    assert pixel.item() == pytest.approx(white, abs=5e-5)


def test_an_archive_and_the_original_files_give_the_same_data(folder: Path) -> None:
    arrays = toy()
    np.savez_compressed(folder / "mnist.npz", **{**arrays, "y_test": arrays["y_test"].astype(np.int64)})
    from_archive = load_dataset("mnist")
    (folder / "mnist.npz").unlink()
    write_idx(folder / "mnist", arrays)
    from_files = load_dataset("mnist")
    (folder / "mnist").rename(folder / "fashion-mnist")
    from_other = load_dataset("fashion-mnist")
    for data in (from_archive, from_files, from_other):
        assert torch.equal(data.train.inputs[:, 0], torch.tensor(arrays["x_train"]))
        assert data.test.labels.tolist() == arrays["y_test"].tolist()
        assert data.provenance["sha256"] == from_archive.provenance["sha256"]
        assert data.provenance["source"] == "folder"
        assert data.provenance["complete"] is False
    assert [data.provenance["file"] for data in (from_archive, from_files)] == ["mnist.npz", "mnist"]


def test_files_in_the_folder_itself_belong_to_the_set_with_their_test_labels(folder: Path) -> None:
    arrays = toy()
    write_idx(folder, arrays, suffix="")
    labels = hashlib.sha256(arrays["y_test"].tobytes()).hexdigest()
    own = offline(MNIST, test_labels=labels)
    assert own.load().provenance["source"] == "folder"
    assert offline(FASHION_MNIST).locate() is None


def test_the_folder_comes_before_the_cache(folder: Path, tmp_path: Path) -> None:
    write_idx(tmp_path / "cache" / "snowball" / "mnist", toy(1))
    cached = load_dataset("mnist")
    assert cached.provenance["source"] == "cache"
    write_idx(folder / "mnist", toy(2))
    assert load_dataset("mnist").provenance["source"] == "folder"
    assert load_dataset("mnist").provenance["sha256"] != cached.provenance["sha256"]


def test_a_download_is_kept_for_the_next_time(served: MNISTLoader, folder: Path, tmp_path: Path) -> None:
    assert served.locate() is None
    first = served.load()
    assert first.provenance["source"] == "download"
    again = offline(served).load()
    assert again.provenance["source"] == "cache"
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert first.train.labels.tolist() == toy()["y_train"].tolist()


def test_a_broken_off_download_is_taken_up_again(served: MNISTLoader, folder: Path, tmp_path: Path) -> None:
    broken = replace(served, sha256=(*served.sha256[:3], "00"))
    with pytest.raises(DataError, match=r"has the sha256 \w+, expected 00"):
        broken.fetch()
    assert served.locate() is None
    (tmp_path / "served" / f"{IDX_FILES[0]}.gz").unlink()  # not asked for again
    assert served.fetch().source == "download"


def test_what_is_missing_says_what_to_fetch_and_where_to_put_it(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        offline(MNIST).load()
    message = str(caught.value)
    assert message.startswith("mnist is not on this machine")
    for part in (*IDX_FILES, "127.0.0.1:1", "$SNOWBALL_DATA/mnist", str(tmp_path / "cache" / "snowball" / "mnist")):
        assert part in message
    assert "\n" not in message


def test_a_data_folder_that_is_not_there_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWBALL_DATA", str(folder / "absent"))
    with pytest.raises(DataError, match="absent', which is not a folder"):
        load_dataset("mnist")
    assert load_dataset("mnist-sample").name == "mnist-sample"


@pytest.mark.parametrize(
    ("key", "array", "fault"),
    [
        ("x_train", np.zeros((20, 28, 28), np.float32), r"x_train is float32 \(20, 28, 28\)"),
        ("x_test", np.zeros((5, 27, 28), np.uint8), r"x_test is uint8 \(5, 27, 28\)"),
        ("x_test", np.zeros((0, 28, 28), np.uint8), r"x_test is uint8 \(0, 28, 28\)"),
        ("y_train", np.zeros(19, np.uint8), r"y_train is uint8 \(19,\), not integers \(20,\)"),
        ("y_train", np.zeros(20), r"y_train is float64 \(20,\)"),
        ("y_test", np.array([0, 1, 2, 3, 10]), "y_test runs from 0 to 10"),
        ("y_test", np.array([0, 1, 2, 3, -1]), "y_test runs from -1 to 3"),
    ],
)
def test_an_archive_of_something_else_is_refused(folder: Path, key: str, array: np.ndarray, fault: str) -> None:
    np.savez(folder / "mnist.npz", **{**toy(), key: array})
    with pytest.raises(DataError, match=fault) as caught:
        load_dataset("mnist")
    found = hashlib.sha256((folder / "mnist.npz").read_bytes()).hexdigest()
    assert found in str(caught.value)
    assert MNIST.npz_sha256 in str(caught.value)


def test_an_idx_file_of_something_else_is_named_itself(folder: Path) -> None:
    write_idx(folder / "mnist", {**toy(), "y_test": np.full(5, 11, np.uint8)})
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz is corrupt: y_test runs from 11 to 11") as caught:
        load_dataset("mnist")
    assert MNIST.npz_sha256 not in str(caught.value)


def test_a_misspelt_name_gets_a_hint() -> None:
    with pytest.raises(SettingError, match="did you mean 'mnist-sample'"):
        load_dataset("mnist-sampel")
    with pytest.raises(SettingError, match="there are mnist-sample, mnist"):
        locate_dataset("imagenet")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_complete_sets_are_known_by_their_contents(name: str) -> None:
    if not locate_dataset(name):
        pytest.skip(f"{name} is neither in $SNOWBALL_DATA nor in the cache")
    data = load_dataset(name)
    assert data.provenance["complete"] is True
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert data.normalise(data.train.inputs).mean().item() == pytest.approx(0, abs=1e-3)
