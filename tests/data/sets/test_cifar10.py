import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from snowball.data import ImageDataset, load_dataset, locate_dataset
from snowball.data.io import formats as files
from snowball.data.sets.cifar10 import (
    CIFAR10,
    COMPLETE_CLASS_SIZES,
    RECORD_BYTES,
    TEST_BATCH,
    TRAIN_BATCHES,
    CIFAR10Loader,
)
from snowball.errors import DataError

FILES = (*TRAIN_BATCHES, TEST_BATCH)
PER_BATCH = 4

Arrays = dict[str, np.ndarray]


def toy(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.integers(0, 256, (5 * PER_BATCH, 32, 32, 3), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 5 * PER_BATCH, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (PER_BATCH, 32, 32, 3), dtype=np.uint8),
        "y_test": rng.integers(0, 10, PER_BATCH, dtype=np.uint8),
    }


def batches(arrays: Arrays) -> dict[str, bytes]:
    """Make the original files: a label and a red, a green and a blue plane per sample."""
    images = np.concatenate([arrays["x_train"], arrays["x_test"]]).transpose(0, 3, 1, 2).reshape(-1, RECORD_BYTES - 1)
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    records = np.column_stack([labels, images])
    return {name: part.tobytes() for name, part in zip(FILES, np.split(records, 6), strict=True)}


def write_folder(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def write_tar(path: Path, contents: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"batches.meta.txt": b"airplane\n", **contents}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def is_toy(data: ImageDataset, arrays: Arrays) -> bool:
    train = torch.equal(data.train.inputs.permute(0, 2, 3, 1), torch.tensor(arrays["x_train"]))
    test = torch.equal(data.test.inputs.permute(0, 2, 3, 1), torch.tensor(arrays["x_test"]))
    labels = data.train.labels.tolist() == arrays["y_train"].tolist()
    return train and test and labels and data.test.labels.tolist() == arrays["y_test"].tolist()


def test_every_form_gives_the_same_data(folder: Path) -> None:
    arrays = toy()
    np.savez_compressed(folder / "cifar10_25k.npz", **arrays)
    found = [load_dataset("cifar10")]
    write_tar(folder / "cifar-10-binary.tar.gz", batches(arrays))
    found.append(load_dataset("cifar10"))
    write_folder(folder, batches(arrays))
    found.append(load_dataset("cifar10"))
    write_folder(folder / "cifar-10-batches-bin", batches(arrays))
    found.append(load_dataset("cifar10"))
    np.savez_compressed(folder / "cifar10.npz", **arrays)
    found.append(load_dataset("cifar10"))
    assert all(isinstance(data, ImageDataset) and is_toy(data, arrays) for data in found)
    assert [data.provenance["file"] for data in found] == [  # what may be complete comes before a part
        "cifar10_25k.npz",
        "cifar-10-binary.tar.gz",
        "data",
        "cifar-10-batches-bin",
        "cifar10.npz",
    ]
    assert len({data.provenance["sha256"] for data in found}) == 1
    assert found[0].provenance["source"] == "folder"
    assert found[0].provenance["complete"] is False
    assert found[0].input_shape == (3, 32, 32)
    assert (found[0].classes, found[0].groups) == (10, None)
    assert (found[1].train.inputs.dtype, found[1].train.labels.dtype) == (torch.uint8, torch.int64)
    assert found[1].train.inputs.is_contiguous()


def test_a_black_pixel_is_the_published_one(folder: Path) -> None:
    np.savez(folder / "cifar10.npz", **toy())
    black = load_dataset("cifar10").normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten()
    assert black.tolist() == pytest.approx([-2.4291, -2.4183, -2.2214], abs=1e-4)
    assert black[:2].tolist() == pytest.approx([-2.42] * 2, abs=0.01)


def test_a_set_with_the_counts_of_the_complete_one_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {**toy(), "y_train": np.arange(20) % 10, "y_test": np.arange(4)}
    np.savez(folder / "cifar10.npz", **arrays)
    monkeypatch.setitem(COMPLETE_CLASS_SIZES, "train", [2] * 10)
    assert load_dataset("cifar10").provenance["complete"] is False
    monkeypatch.setitem(COMPLETE_CLASS_SIZES, "test", [1] * 4 + [0] * 6)
    assert load_dataset("cifar10").provenance["complete"] is True


def test_a_download_is_kept_for_the_next_time(serve: Callable[[Path], str], folder: Path, tmp_path: Path) -> None:
    write_tar(tmp_path / "served" / CIFAR10.archive, batches(toy()))
    sha256 = hashlib.sha256((tmp_path / "served" / CIFAR10.archive).read_bytes()).hexdigest()
    served = replace(CIFAR10, home=serve(tmp_path / "served"), sha256=sha256)
    assert served.locate() is None
    first = served.load()
    assert first.provenance["source"] == "download"
    again = replace(served, home="http://127.0.0.1:1/").load()
    assert again.provenance["source"] == "cache"
    assert is_toy(again, toy())
    with pytest.raises(DataError, match=r"has the sha256 \w+, expected 00"):
        replace(served, sha256="00", name="other").fetch()


def test_what_is_missing_says_what_to_fetch_and_where_to_put_it(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        CIFAR10Loader(home="http://127.0.0.1:1/").load()
    message = str(caught.value)
    assert message.startswith("cifar10 is not on this machine, and http://127.0.0.1:1/cifar-10-binary.tar.gz cannot")
    for part in ("put cifar-10-binary.tar.gz", "$SNOWBALL_DATA/cifar10", str(tmp_path / "cache/snowball/cifar10")):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "array", "fault"),
    [
        ("x_train", np.zeros((20, 3, 32, 32), np.uint8), r"x_train is uint8 \(20, 3, 32, 32\), not uint8 \(n, 32, 32"),
        ("x_test", np.zeros((4, 32, 32, 3)), r"x_test is float64 \(4, 32, 32, 3\)"),
        ("x_test", np.zeros((), np.uint8), r"x_test is uint8 \(\)"),
        ("y_train", np.zeros(19, np.uint8), r"y_train is uint8 \(19,\), not integers \(20,\)"),
        ("y_test", np.array([0, 1, 2, 10]), "y_test runs from 0 to 10"),
    ],
)
def test_an_archive_of_something_else_is_refused(folder: Path, key: str, array: np.ndarray, fault: str) -> None:
    np.savez(folder / "cifar10.npz", **{**toy(), key: array})
    with pytest.raises(DataError, match=fault) as caught:
        load_dataset("cifar10")
    assert hashlib.sha256((folder / "cifar10.npz").read_bytes()).hexdigest() in str(caught.value)


BAD = {
    "truncated": (
        batches(toy())["test_batch.bin"][:-1],
        "12291 bytes are not a multiple of the 3073 bytes of a sample",
    ),
    "empty": (b"", "0 bytes are not a multiple"),
    "label": (bytes([11]) + bytes(RECORD_BYTES - 1), "it has the label 11, not within 0 to 9"),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_original_file_of_something_else_is_refused(folder: Path, kind: str) -> None:
    data, fault = BAD[kind]
    write_tar(folder / CIFAR10.archive, {**batches(toy()), TEST_BATCH: data})
    with pytest.raises(DataError, match=rf"binary\.tar\.gz is corrupt: {fault}"):
        load_dataset("cifar10")
    write_folder(folder / "cifar-10-batches-bin", {**batches(toy()), TEST_BATCH: data})
    with pytest.raises(DataError, match=rf"test_batch\.bin is corrupt: {fault}"):
        load_dataset("cifar10")


def test_an_archive_that_lacks_a_file_or_its_end_is_refused(folder: Path) -> None:
    path = folder / CIFAR10.archive
    write_tar(path, {name: data for name, data in batches(toy()).items() if name != "data_batch_3.bin"})
    with pytest.raises(DataError, match=r"it has no data_batch_3\.bin"):
        load_dataset("cifar10")
    write_tar(path, batches(toy()))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"tar\.gz is corrupt"):
        load_dataset("cifar10")
    path.write_bytes(gzip.compress(b"no archive" * 100))
    with pytest.raises(DataError, match=r"tar\.gz is corrupt"):
        load_dataset("cifar10")


def test_a_bomb_is_not_unpacked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(folder / CIFAR10.archive, {"filler": bytes(1 << 20), **batches(toy())})
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 1 << 18)
    with pytest.raises(DataError, match="more than the limit of 262144 bytes"):
        load_dataset("cifar10")


def test_a_link_out_of_the_archive_is_not_followed(folder: Path) -> None:
    with tarfile.open(folder / CIFAR10.archive, "w:gz") as archive:
        link = tarfile.TarInfo("data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"tar\.gz is corrupt"):
        load_dataset("cifar10")


def test_the_real_thing() -> None:
    if not locate_dataset("cifar10"):
        pytest.skip("cifar10 is neither in $SNOWBALL_DATA nor in the cache")
    data = load_dataset("cifar10")
    assert data.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert data.test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert data.train.inputs[0, :, 0, 0].tolist() == [59, 62, 63]
    assert data.provenance["complete"] is (len(data.train) == 50_000)
    assert data.normalise(data.train.inputs[:5000]).mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=0.05)
