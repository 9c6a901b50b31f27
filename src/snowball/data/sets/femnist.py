"""FEMNIST: handwritten digits and letters, by writer, and the letters alone.

Caldas et al.: LEAF, A Benchmark for Federated Settings, 2018. The images are from NIST Special Database 19.

Every writer is a natural client, and a tenth of each writer's images is for testing, as published. A partial copy has
very few images of some writers: those with fewer than 50 are dropped. The complete set keeps them: all of its 3,597
writers are the paper's clients, and some have fewer than 40.

`letters` has the classes of EMNIST's split "letters" (Cohen et al.: EMNIST, 2017), which is from the same source. It is
not balanced, its paper is white, and its writers are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from snowball.data.base import Location, Split
from snowball.data.images import Array, ImageDataset, find_image_fault, find_label_fault
from snowball.data.io.cache import Tensors, load_cached
from snowball.data.io.formats import convert_read_errors, read_npz
from snowball.data.io.leaf import find_leaf_files, read_writers
from snowball.data.io.locate import describe_provenance, find_first_file, locate_copy, make_missing_error
from snowball.data.partition import Indices, partition_natural
from snowball.errors import DataError
from snowball.rng import numpy_stream

CLASSES, SHAPE = 62, (28, 28)
DIGITS, LETTERS = 10, 26
FOLDER = "femnist"
KEYS = ("x", "y", "writer", "writer_ids")
MAX_IMAGE_BYTES = 1 << 30  # the complete set has 641 million
COMPLETE_SIZE = (3597, 817_851)  # writers and images
MIN_IMAGES_PER_WRITER = 50  # in a partial copy
SEED = 0

# The published experiments standardise with these: paper is white, so ink is far below zero.
MEAN, STD = 0.9637, 0.1550


@dataclass(frozen=True, eq=False)
class WrittenImages:
    """Images in file order, and their writers."""

    images: Array  # (n, 28, 28) uint8
    labels: Array  # (n,)
    writer: Array  # (n,) index into the ids
    ids: list[str]

    def select(self, name: str, parts: Sequence[Indices]) -> Tensors:
        """Select images and their labels by index, named for a split."""
        index = np.concatenate(parts)
        images, labels = torch.from_numpy(self.images[index]), torch.from_numpy(self.labels[index].astype(np.uint8))
        return {name: images.unsqueeze(1), f"{name}_labels": labels}


@dataclass(frozen=True)
class FEMNISTLoader:
    """Finds and loads FEMNIST."""

    name: str = "femnist"
    summary: str = "817,851 handwritten digits and letters of 3,597 writers in 62 classes, 28x28"
    needs: str = "femnist.npz or the JSON files that https://github.com/TalwalkarLab/leaf makes"
    classes: int = CLASSES

    def locate(self) -> Location | None:
        """Locate a copy in $SNOWBALL_DATA or the user's cache."""
        return locate_copy(self._find)

    def _find(self, folder: Path) -> Path | None:
        own = folder / FOLDER
        leaf_folders = (parent for parent in (own, own / "data") if find_leaf_files(parent))
        return find_first_file(parent / "femnist.npz" for parent in (folder, own)) or next(leaf_folders, None)

    def fetch(self) -> Location:
        """Locate a copy; there is no download in a format that can be read here."""
        if location := self.locate():
            return location
        raise make_missing_error(self.name, "it cannot be downloaded ready to use", self.needs, FOLDER)

    def load(self) -> ImageDataset:
        """Load the data set from where it is found first."""
        location = self.fetch()
        files = [location.path] if location.path.is_file() else find_leaf_files(location.path)
        tensors = load_cached(FOLDER, files, lambda: parse_samples(location.path, files))
        train, test = (Split(tensors[part], tensors[f"{part}_labels"].long()) for part in ("train", "test"))
        complete = tuple(tensors["counts"].tolist()) == COMPLETE_SIZE
        train, test, groups = self.select(location.path, train, test, tensors["groups"])
        record = describe_provenance(location, train, test, complete, writers=int(groups[-1]) + 1)
        return ImageDataset(self.name, self.classes, train, test, record, groups, mean=(MEAN,), std=(STD,))

    def select(self, path: Path, train: Split, test: Split, groups: Tensor) -> tuple[Split, Split, Tensor]:
        """Select the samples of this set from all that the copy at a path has, and the writers of the training part."""
        return train, test, groups


@dataclass(frozen=True)
class LettersLoader(FEMNISTLoader):
    """The letters of FEMNIST, with capital and small ones in one class, as EMNIST's split "letters" has them."""

    name: str = "letters"
    summary: str = "the letters of FEMNIST in 26 classes, a capital and its small letter in one, by writer, 28x28"
    classes: int = LETTERS

    def select(self, path: Path, train: Split, test: Split, groups: Tensor) -> tuple[Split, Split, Tensor]:
        """Leave out digits, and writers of digits alone."""
        own, others = train.labels >= DIGITS, test.labels >= DIGITS
        if not own.any() or not others.any():
            raise DataError(f"{path} has no letters to train on or to test with: letters have the labels 10 to 61")
        _, writers = torch.unique(groups[own], return_inverse=True)
        return merge_cases(train[own]), merge_cases(test[others]), writers


def merge_cases(letters: Split) -> Split:
    """Number letters from 0 for A and a to 25 for Z and z; FEMNIST's labels are digits, then capitals, then others."""
    return Split(letters.inputs, (letters.labels - DIGITS) % LETTERS)


def parse_samples(path: Path, files: list[Path]) -> Tensors:
    """Parse the samples and split them into training and test; `counts` are all writers and images of the copy."""
    written = read_archive(path) if path.is_file() else read_leaf_files(files)
    counts = len(written.ids), len(written.images)
    minimum = 1 if counts == COMPLETE_SIZE else MIN_IMAGES_PER_WRITER
    if np.unique(written.writer, return_counts=True)[1].max() < minimum:
        raise DataError(f"{path} is too small: none of its {len(written.ids)} writers has {minimum} images")
    return {**split_by_writer(written, minimum), "counts": torch.tensor(counts)}


def read_archive(path: Path) -> WrittenImages:
    """Read a NumPy archive."""
    arrays = images, labels, writer, ids = read_npz(path, KEYS, limit=MAX_IMAGE_BYTES)
    with convert_read_errors(path):  # names may not be valid text
        if fault := find_archive_fault(*arrays):
            raise ValueError(fault)
        "".join(names := ids.ravel().tolist()).encode()
    return WrittenImages(images, labels, writer, names)


def find_archive_fault(images: Array, labels: Array, writer: Array, ids: Array) -> str:
    """Describe the fault of an archive's arrays; empty if there is none."""
    if fault := find_image_fault(images, SHAPE):
        return f"x {fault}"
    if fault := find_label_fault(labels, len(images), CLASSES):
        return f"y {fault}"
    if ids.dtype.kind != "U" or len(set(ids.flat)) != ids.size:
        return "writer_ids is not a list of distinct names"
    if fault := find_label_fault(writer, len(images), ids.size):
        return f"writer {fault}"
    if len(absent := np.setdiff1d(np.arange(ids.size), writer)):
        return f"writer {str(ids.flat[absent[0]])[:40]!r} has no images"
    return ""


def read_leaf_files(files: list[Path]) -> WrittenImages:
    """Read LEAF's JSON files."""
    writers = read_writers(files, CLASSES)
    images, labels = zip(*writers.values(), strict=True)
    writer = np.repeat(np.arange(len(writers)), list(map(len, labels)))
    return WrittenImages(np.concatenate(images), np.concatenate(labels), writer, list(writers))


def split_by_writer(written: WrittenImages, minimum: int) -> Tensors:
    """Split each writer's images into training and test; `groups` are the writers of the training images.

    Writers are numbered by ascending id, and each has its own random stream. The same images are for testing whatever
    the order of the files and whichever other writers they hold.
    """
    rank = np.empty(len(written.ids), np.int64)
    rank[sorted(range(len(rank)), key=written.ids.__getitem__)] = np.arange(len(rank))
    train, test = [], []
    for part in partition_natural(torch.from_numpy(rank[written.writer]), minimum):
        name = written.ids[int(written.writer[part[0]])]
        shuffled = numpy_stream(SEED, "femnist", "test", name).permutation(part.numpy())
        cut = len(part) * 9 // 10
        train.append(np.sort(shuffled[:cut]))
        test.append(np.sort(shuffled[cut:]))
    groups = torch.arange(len(train)).repeat_interleave(torch.tensor(list(map(len, train))))
    return {**written.select("train", train), **written.select("test", test), "groups": groups}


FEMNIST, LETTERS_ALONE = FEMNISTLoader(), LettersLoader()
