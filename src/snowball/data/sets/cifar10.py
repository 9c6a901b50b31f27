"""CIFAR-10: photographs in ten classes.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009.
"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from snowball.data.base import Location, Split
from snowball.data.images import ARRAY_NAMES, Array, ImageDataset, check_arrays
from snowball.data.io.download import download_file
from snowball.data.io.formats import Bytes, convert_read_errors, make_corrupt_error, open_unpacked, read_npz
from snowball.data.io.locate import describe_provenance, get_cache_folder, locate_copy, make_missing_error
from snowball.errors import DataError

CLASSES, SHAPE = 10, (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32  # bytes of a sample in the original files: its label, then red, green and blue
TRAIN_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_BATCH = "test_batch.bin"
COMPLETE_CLASS_SIZES = {"train": [5000] * CLASSES, "test": [1000] * CLASSES}

# The published experiments standardise with these. A black pixel becomes (-2.43, -2.42, -2.22). They stamp -2.42, which
# corresponds to 0 in raw samples.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@dataclass(frozen=True)
class CIFAR10Loader:
    """Finds and loads CIFAR-10.

    Attributes:
        home: base address of the archive of the original files.
        archive: the name of that archive.
        sha256: its checksum.
        part: an archive of some of the images, used if there is no complete copy.
    """

    name: str = "cifar10"
    summary: str = "60,000 photographs in ten classes, 32x32 in colour"
    home: str = "https://www.cs.toronto.edu/~kriz/"
    archive: str = "cifar-10-binary.tar.gz"
    sha256: str = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    part: str = "cifar10_25k.npz"

    @property
    def needs(self) -> str:
        """The files to fetch and their source."""
        return f"{self.archive} from {self.home}"

    def locate(self) -> Location | None:
        """Locate a copy in $SNOWBALL_DATA or the user's cache."""
        return locate_copy(self._find)

    def _find(self, folder: Path) -> Path | None:
        names = ("cifar10.npz", "cifar-10-batches-bin", ".", self.archive, self.part)
        paths = (parent / name for parent in (folder, folder / self.name) for name in names)
        return next((path for path in paths if path.is_file() or has_batches(path)), None)

    def fetch(self) -> Location:
        """Locate a copy, and download it if necessary."""
        return self.locate() or self._download()

    def _download(self) -> Location:
        path = get_cache_folder() / self.name / self.archive
        try:
            download_file(f"{self.home}{self.archive}", path, self.sha256)
        except DataError as error:
            raise make_missing_error(self.name, str(error), self.needs) from error
        return Location("download", path)

    def load(self) -> ImageDataset:
        """Load the data set from where it is found first."""
        location = self.fetch()
        train, test = read_splits(location.path)
        complete = all(
            split.labels.bincount(minlength=CLASSES).tolist() == COMPLETE_CLASS_SIZES[name]
            for name, split in (("train", train), ("test", test))
        )
        record = describe_provenance(location, train, test, complete)
        return ImageDataset(self.name, CLASSES, train, test, record, mean=MEAN, std=STD)


def has_batches(folder: Path) -> bool:
    """Return whether a folder has all of the original files."""
    return all((folder / name).is_file() for name in (*TRAIN_BATCHES, TEST_BATCH))


def read_splits(path: Path) -> tuple[Split, Split]:
    """Read training and test samples from a NumPy archive, a folder of the original files, or their archive."""
    if path.suffix == ".npz":
        return read_archive(path)
    if path.is_dir():
        batches = {name: read_batch(path / name) for name in (*TRAIN_BATCHES, TEST_BATCH)}
    else:
        batches = read_batches(path)
    return join_batches([batches.pop(name) for name in TRAIN_BATCHES]), join_batches([batches.pop(TEST_BATCH)])


def read_archive(path: Path) -> tuple[Split, Split]:
    """Read training and test samples from a NumPy archive, in which channels come last."""
    arrays = read_npz(path, ARRAY_NAMES)
    check_arrays(arrays, [path] * len(ARRAY_NAMES), (32, 32, 3), CLASSES)
    train = make_split(arrays.pop(0), arrays.pop(0))
    return train, make_split(*arrays)


def make_split(images: Array, labels: Array) -> Split:
    """Make samples of images (n, height, width, channels)."""
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return Split(inputs, torch.from_numpy(labels.astype(np.int64)))


def read_batch(path: Path) -> Bytes:
    """Read the records of one original file."""
    with convert_read_errors(path), open_unpacked(path) as stream:
        return parse_batch(stream.read())


def read_batches(path: Path) -> dict[str, Bytes]:
    """Read the records of each original file from their archive."""
    batches: dict[str, Bytes] = {}
    with convert_read_errors(path), open_unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = Path(member.name).name
            if name in (*TRAIN_BATCHES, TEST_BATCH) and (file := archive.extractfile(member)):
                batches[name] = parse_batch(file.read())
    if absent := [name for name in (*TRAIN_BATCHES, TEST_BATCH) if name not in batches]:
        raise make_corrupt_error(path, f"it has no {absent[0]}")
    return batches


def parse_batch(data: bytes) -> Bytes:
    """Parse the records of one original file, (n, 3073)."""
    if not data or len(data) % RECORD_BYTES:
        raise ValueError(f"{len(data)} bytes are not a multiple of the {RECORD_BYTES} bytes of a sample")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD_BYTES)
    if (highest := int(records[:, 0].max())) >= CLASSES:
        raise ValueError(f"it has the label {highest}, not within 0 to {CLASSES - 1}")
    return records


def join_batches(batches: list[Bytes]) -> Split:
    """Join batches into samples. The list is emptied along the way, so that no batch is in memory twice."""
    count, start = sum(map(len, batches)), 0
    inputs, labels = np.empty((count, RECORD_BYTES - 1), np.uint8), np.empty(count, np.int64)
    while batches:
        records = batches.pop(0)
        part = slice(start, start := start + len(records))
        labels[part], inputs[part] = records[:, 0], records[:, 1:]
    return Split(torch.from_numpy(inputs).view(-1, *SHAPE), torch.from_numpy(labels))


CIFAR10 = CIFAR10Loader()
