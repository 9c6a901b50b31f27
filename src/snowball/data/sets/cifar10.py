"""CIFAR-10: photographs of ten kinds of things.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.
"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from snowball.data.base import Location, Split
from snowball.data.images import KEYS, Array, ImageDataset, check_arrays
from snowball.data.io.download import download
from snowball.data.io.formats import Bytes, corrupt, read_npz, reading, unpacked
from snowball.data.io.locate import cache_folder, locate, missing, provenance
from snowball.errors import DataError

CLASSES, SHAPE = 10, (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # bytes of a sample in the original files: its label, then red, green and blue
TRAIN_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_BATCH = "test_batch.bin"
COMPLETE = {"train": [5000] * CLASSES, "test": [1000] * CLASSES}

# What the published experiments take from pixels and divide them by. A black pixel becomes (-2.43, -2.42, -2.22), the
# first two of which are the -2.42 that they stamp: 0 is what a black trigger has to be in raw samples.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True)
class Cifar10:
    """Where CIFAR-10 is found, and how it is read.

    Attributes:
        home: the address that the archive of the original files lies under.
        archive: the name of that archive, and its md5.
        part: an archive of some of the images, which is used where there is nothing complete.
    """

    name: str = "cifar10"
    summary: str = "60,000 photographs in ten classes, 32x32 in colour"
    home: str = "https://www.cs.toronto.edu/~kriz/"
    archive: str = "cifar-10-binary.tar.gz"
    md5: str = "c32a1d4ab5d03f1284b67883e8d87530"
    part: str = "cifar10_25k.npz"

    @property
    def needs(self) -> str:
        """What to fetch, and from where."""
        return f"{self.archive} from {self.home}"

    def locate(self) -> Location | None:
        """The first find in $SNOWBALL_DATA and the user's cache."""
        return locate(self._find)

    def _find(self, folder: Path) -> Path | None:
        names = ("cifar10.npz", "cifar-10-batches-bin", ".", self.archive, self.part)
        paths = (place / name for place in (folder, folder / self.name) for name in names)
        return next((path for path in paths if path.is_file() or holds_batches(path)), None)

    def fetch(self) -> Location:
        """Where the set is on this machine, after a download if need be."""
        return self.locate() or self._download()

    def _download(self) -> Location:
        path = cache_folder() / self.name / self.archive
        try:
            download(f"{self.home}{self.archive}", path, self.md5)
        except DataError as error:
            raise missing(self.name, str(error), self.needs) from error
        return Location("download", path)

    def load(self) -> ImageDataset:
        """The data set in memory, from wherever it is found first."""
        location = self.fetch()
        train, test = read(location.path)
        complete = all(
            split.labels.bincount(minlength=CLASSES).tolist() == COMPLETE[name]
            for name, split in (("train", train), ("test", test))
        )
        record = provenance(location, train, test, complete)
        return ImageDataset(self.name, CLASSES, train, test, record, mean=MEAN, std=STD)


def holds_batches(folder: Path) -> bool:
    """Whether a folder holds all of the original files."""
    return all((folder / name).is_file() for name in (*TRAIN_BATCHES, TEST_BATCH))


def read(path: Path) -> tuple[Split, Split]:
    """Training and test samples from a NumPy archive, a folder of the original files, or the archive of these."""
    if path.suffix == ".npz":
        return read_archive(path)
    if path.is_dir():
        batches = {name: read_batch(path / name) for name in (*TRAIN_BATCHES, TEST_BATCH)}
    else:
        batches = read_batches(path)
    return joined([batches.pop(name) for name in TRAIN_BATCHES]), joined([batches.pop(TEST_BATCH)])


def read_archive(path: Path) -> tuple[Split, Split]:
    """Training and test samples from a NumPy archive, in which channels come last."""
    arrays = read_npz(path, KEYS)
    check_arrays(arrays, [path] * len(KEYS), (32, 32, 3), CLASSES)
    train = channels_first(arrays.pop(0), arrays.pop(0))
    return train, channels_first(*arrays)


def channels_first(images: Array, labels: Array) -> Split:
    """Samples of (n, height, width, channels) images."""
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return Split(inputs, torch.from_numpy(labels.astype(np.int64)))


def read_batch(path: Path) -> Bytes:
    """The records of one of the original files."""
    with reading(path), unpacked(path) as stream:
        return parse_batch(stream.read())


def read_batches(path: Path) -> dict[str, Bytes]:
    """The records of each of the original files, from their archive."""
    batches: dict[str, Bytes] = {}
    with reading(path), unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = Path(member.name).name
            if name in (*TRAIN_BATCHES, TEST_BATCH) and (file := archive.extractfile(member)):
                batches[name] = parse_batch(file.read())
    if absent := [name for name in (*TRAIN_BATCHES, TEST_BATCH) if name not in batches]:
        raise corrupt(path, f"it has no {absent[0]}")
    return batches


def parse_batch(data: bytes) -> Bytes:
    """The records in one of the original files, (n, 3073)."""
    if not data or len(data) % RECORD:
        raise ValueError(f"{len(data)} bytes are no whole number of samples of {RECORD} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    if (highest := int(records[:, 0].max())) >= CLASSES:
        raise ValueError(f"it has the label {highest}, not within 0 to {CLASSES - 1}")
    return records


def joined(batches: list[Bytes]) -> Split:
    """The samples of some batches, which are used up one by one so as not to be in memory twice."""
    count, start = sum(map(len, batches)), 0
    inputs, labels = np.empty((count, RECORD - 1), np.uint8), np.empty(count, np.int64)
    while batches:
        records = batches.pop(0)
        part = slice(start, start := start + len(records))
        labels[part], inputs[part] = records[:, 0], records[:, 1:]
    return Split(torch.from_numpy(inputs).view(-1, *SHAPE), torch.from_numpy(labels))


CIFAR10 = Cifar10()
