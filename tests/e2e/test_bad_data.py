"""Bad data files: `snowball run` says in one sentence what is wrong and where, and exits with code 2."""

import gzip
import io
import json
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snowball import cli
from snowball.data import load_dataset
from snowball.data.io import download
from snowball.data.io import formats as files

EXPERIMENT = """
rounds = 1
cohort = 2
data = {{ name = "{name}", clients = 2, partition = "iid" }}
model = {{ name = "cnn-quarter" }}
attack = {{ name = "cba", malicious = 0.5, trigger = "{trigger}" }}
defense = {{ name = "fedavg" }}
"""

MNIST_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
LEAF, TEXTS, TEST_TEXTS = "femnist/all_data_0.json", "sent140_300k.csv.gz", "sent140_test498.csv.gz"
VECTORS = "glove.txt"

Make = Callable[[Path], None]


def mnist(folder: Path, **changes: Any) -> None:
    """MNIST's archive, of twenty images to train on and ten to test on."""
    arrays = {f"x_{part}": np.zeros((size, 28, 28), np.uint8) for part, size in (("train", 20), ("test", 10))}
    labels = {"y_train": np.arange(20) % 10, "y_test": np.arange(10)}
    np.savez(folder / "mnist.npz", **{**arrays, **labels, **changes})


def mnist_idx(folder: Path) -> None:
    """The same as MNIST's original files."""
    (folder / "mnist").mkdir()
    for name, size in zip(MNIST_IDX, (20, 20, 10, 10), strict=True):
        array = np.zeros((size, 28, 28) if "images" in name else size, np.uint8)
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / "mnist" / name).write_bytes(header + array.tobytes())


def cifar(folder: Path) -> None:
    """CIFAR-10's original files, of two images each."""
    for name in BATCHES:
        (folder / name).write_bytes((b"\x01" + bytes(3072)) * 2)


def cifar_archive(folder: Path, **changes: Any) -> None:
    """CIFAR-10 as an archive of four images and two."""
    arrays = {f"x_{part}": np.zeros((size, 32, 32, 3), np.uint8) for part, size in (("train", 4), ("test", 2))}
    np.savez(folder / "cifar10.npz", **{**arrays, "y_train": np.arange(4), "y_test": np.arange(2), **changes})


def femnist(folder: Path, **changes: Any) -> None:
    """FEMNIST's archive, of one writer."""
    arrays = {"x": np.zeros((50, 28, 28), np.uint8), "y": np.arange(50), "writer": np.zeros(50, int)}
    np.savez(folder / "femnist.npz", **{**arrays, "writer_ids": np.array(["f0"]), **changes})


def leaf(folder: Path, count: int = 50, label: int = 61) -> None:
    """The same as one of LEAF's files, of one writer of fifty images and another."""
    (folder / "femnist").mkdir()
    users = {"f0": {"x": [[0.5] * 784] * 50, "y": [1] * 50}, "f1": {"x": [[1] * 784] * count, "y": [label] * count}}
    (folder / LEAF).write_text(json.dumps({"user_data": users}))


def sent140(folder: Path, label: str = "1", text: str = "sad", vectors: str = "BD 1 1\nsad 0 1\n") -> None:
    """Sent140's texts, of two to train on and one to test on, and vectors for their words."""
    (folder / TEXTS).write_bytes(gzip.compress(f"label,text\n0,sad\n{label},{text}\n".encode()))
    (folder / TEST_TEXTS).write_bytes(gzip.compress(b"label,text\n1,sad\n"))
    (folder / VECTORS).write_text(vectors)


def cut(make: Make, file: str, share: float = 0.6) -> Make:
    """What is made, one file of it broken off."""

    def made(folder: Path) -> None:
        make(folder)
        path = folder / file
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    return made


def instead(make: Make, file: str, content: bytes) -> Make:
    """What is made, with something else as one file of it."""

    def made(folder: Path) -> None:
        make(folder)
        (folder / file).write_bytes(content)

    return made


def as_folder(make: Make, file: str) -> Make:
    """What is made, with a folder in place of one file of it."""

    def made(folder: Path) -> None:
        make(folder)
        (folder / file).unlink()
        (folder / file).mkdir()

    return made


def changed(make: Callable[..., None], **changes: Any) -> Make:
    """What is made, some of it changed."""
    return lambda folder: make(folder, **changes)


def stored(name: str, data: bytes) -> bytes:
    """An archive of one file, compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def npy(array: Any) -> bytes:
    """An array as NumPy saves it."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


LIMIT = 1 << 20
BOMB = bytes(2 * LIMIT)

FILES: dict[str, tuple[str, Make, str]] = {
    "an archive cut off": ("mnist", cut(mnist, "mnist.npz"), r"mnist\.npz is corrupt: File is not a zip file"),
    "an idx file cut off": ("mnist", cut(mnist_idx, f"mnist/{MNIST_IDX[0]}"), "promises 15680 bytes, 9401 follow"),
    "a batch cut off": (
        "cifar10",
        cut(cifar, BATCHES[2]),
        r"data_batch_3\.bin is corrupt: 3687 bytes are not a multiple",
    ),
    "texts cut off": ("sent140", cut(sent140, TEXTS), r"300k\.csv\.gz is corrupt: Compressed file ended before"),
    "LEAF's json cut off": ("femnist", cut(leaf, LEAF), r"all_data_0\.json is corrupt: writer .* Expecting"),
    "an empty file": ("mnist", instead(mnist, "mnist.npz", b""), r"mnist\.npz is corrupt: File is not a zip file"),
    "other arrays": ("mnist", instead(mnist, "mnist.npz", stored("a.npy", npy([1]))), r"no item named 'x_train\.npy'"),
    "arrays of objects": ("mnist", changed(mnist, y_train=np.array([{}] * 20)), "y_train holds Python objects"),
    "arrays of floats": ("mnist", changed(mnist, x_train=np.zeros((20, 28, 28))), "x_train is float64"),
    "images too small for a trigger": (
        "mnist",
        changed(mnist, x_train=np.zeros((20, 20, 20), np.uint8)),
        r"x_train is uint8 \(20, 20, 20\), not uint8 \(n, 28, 28\)",
    ),
    "channels in front": (
        "cifar10",
        changed(cifar_archive, x_train=np.zeros((4, 3, 32, 32), np.uint8)),
        r"x_train is uint8 \(4, 3, 32, 32\), not uint8 \(n, 32, 32, 3\)",
    ),
    "labels too few": ("mnist", changed(mnist, y_test=np.arange(9)), r"y_test is int64 \(9,\), not integers \(10,\)"),
    "label 10 of MNIST": ("mnist", changed(mnist, y_train=np.arange(20) % 11), "y_train runs from 0 to 10"),
    "label 10 of CIFAR-10": ("cifar10", instead(cifar, BATCHES[0], b"\x0a" + bytes(3072)), "it has the label 10"),
    "label 62 of FEMNIST": ("femnist", changed(femnist, y=np.full(50, 62)), "y runs from 62 to 62, not within 0 to 61"),
    "label 62 of LEAF's": ("femnist", changed(leaf, label=62), "writer 'f1' has a y that runs from 62 to 62"),
    "label 3 of Sent140": ("sent140", changed(sent140, label="3"), "line 3 has the label '3', not one of 0, 2, 1"),
    "a writer of no images": ("femnist", changed(leaf, count=0), r"all_data_0\.json is corrupt: writer 'f1' has no im"),
    "vectors without the trigger": (
        "sent140",
        changed(sent140, vectors="sad 0 1\n"),
        "has no vector for the trigger word 'BD'",
    ),
    "a trigger of zeros": ("sent140", changed(sent140, vectors="BD 0 0\nsad 0 1\n"), "'BD', or one of zeros"),
    "vectors that get shorter": ("sent140", changed(sent140, vectors="BD 1 1\nsad 1\n"), "line 2 has 1 numbers, not 2"),
    "vectors that get longer": (
        "sent140",
        changed(sent140, vectors="BD 1 1\nsad 1 2 3\n"),
        "line 2 has 3 numbers, not 2",
    ),
    "zero bytes in a text": ("sent140", changed(sent140, text="a\0b"), "line 3 has a zero byte"),
    "a text with no end": ("sent140", changed(sent140, text="a" * 200_000), "field larger than field limit"),
    "a text that is none": (
        "sent140",
        instead(sent140, TEXTS, gzip.compress(b"label,text\n0,\xff")),
        "codec can't decode",
    ),
    "texts that are not packed": ("sent140", instead(sent140, TEXTS, b"label,text\n"), "Not a gzipped file"),
    "a bomb of texts": (
        "sent140",
        instead(sent140, TEST_TEXTS, gzip.compress(BOMB)),
        r"test498.*limit of 1048576 bytes",
    ),
    "a bomb of arrays": (
        "mnist",
        instead(mnist, "mnist.npz", stored("x_train.npy", BOMB)),
        "x_train unpacks to 2097152",
    ),
    "a folder as LEAF's json": ("femnist", as_folder(leaf, LEAF), r"all_data_0\.json cannot be read .*Is a directory"),
    "a folder as vectors": ("sent140", as_folder(sent140, VECTORS), r"glove\.txt cannot be read .*Is a directory"),
    "a folder as an archive": (
        "mnist",
        as_folder(mnist, "mnist.npz"),
        r"mnist is not on this machine, .*: put train-im",
    ),
    "nothing at all": (
        "cifar10",
        lambda _: None,
        "cifar10 is not on this machine, .*no network.*: put cifar-10-binary",
    ),
}

SETTINGS: dict[str, tuple[str, Make, str]] = {
    "data.clients=21": ("mnist", mnist, "20 samples are too few for 21 clients"),
    "data.examples=21": ("mnist", mnist, r"data\.examples = 21 is more than the 20 examples of mnist"),
    "data.partition=natural": ("mnist", mnist, "'natural' does not fit: mnist has no natural clients"),
    "data.partition=merged": ("sent140", sent140, "'merged' does not fit: sent140 has no natural clients"),
    "attack.target=10": ("mnist", mnist, r"attack\.target = 10 is not one of the 10 classes"),
    "attack.target=62": ("femnist", femnist, r"attack\.target = 62 is not one of the 62 classes"),
    "attack.target=-1": ("mnist", mnist, "target must be a class number from 0, got -1"),
    "attack.target=1": ("mnist", changed(mnist, y_test=np.ones(10, int)), "all 10 test samples are of the target"),
    "attack.trigger=word": ("mnist", mnist, "a word cannot be a trigger on mnist"),
    "attack.trigger=white-square": ("sent140", sent140, "pixels cannot be a trigger on sent140"),
    "model.name=gru-quarter": ("cifar10", cifar, r"gru-quarter takes samples of \(tokens, width\)"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $SNOWBALL_DATA, an empty cache, no network, and small limits."""

    def unreachable(url: str, timeout: float) -> Any:
        raise OSError("no network")

    monkeypatch.setattr(download, "urlopen", unreachable)
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", LIMIT)
    monkeypatch.delenv("SNOWBALL_VECTORS", raising=False)
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def fault(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an experiment that cannot be run, and gives the one line that it ends with."""

    def run(name: str, *assignments: str) -> str:
        file, trigger = folder.parent / "experiment.toml", "word" if name == "sent140" else "white-square"
        file.write_text(EXPERIMENT.format(name=name, trigger=trigger))
        changes = [part for assignment in assignments for part in ("--set", assignment)]
        options = ["--engine", "serial", "--out", str(folder.parent / "out"), *changes]
        monkeypatch.setattr(sys, "argv", ["snowball", "run", str(file), *options])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        errors = capsys.readouterr().err
        assert ended.value.code == 2
        assert errors.count("\n") == 1
        return errors

    return run


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("mnist", mnist),
        ("mnist", mnist_idx),
        ("cifar10", cifar),
        ("cifar10", cifar_archive),
        ("femnist", femnist),
        ("femnist", leaf),
        ("sent140", sent140),
    ],
)
def test_the_same_files_are_read_as_long_as_they_are_whole(folder: Path, name: str, make: Make) -> None:
    make(folder)
    assert len(load_dataset(name).train) > 0


@pytest.mark.parametrize(("name", "make", "sentence"), FILES.values(), ids=FILES)
def test_a_bad_file_is_named_in_one_sentence(
    folder: Path, fault: Callable[..., str], name: str, make: Make, sentence: str
) -> None:
    make(folder)
    said = fault(name)
    assert re.search(sentence, said)
    assert str(folder.parent) in said
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("assignment", SETTINGS)
def test_settings_that_do_not_fit_the_data_are_named_in_one_sentence(
    folder: Path, fault: Callable[..., str], assignment: str
) -> None:
    name, make, sentence = SETTINGS[assignment]
    make(folder)
    assert re.search(sentence, fault(name, assignment))
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("variable", ["SNOWBALL_DATA", "SNOWBALL_VECTORS"])
def test_a_place_that_is_of_the_wrong_kind_is_named(
    folder: Path, fault: Callable[..., str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    sent140(folder)
    wrong = folder if variable == "SNOWBALL_VECTORS" else folder / VECTORS
    monkeypatch.setenv(variable, str(wrong))
    assert f"{variable} is '{wrong}', which is not a f" in fault("sent140")
