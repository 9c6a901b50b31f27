"""FEMNIST: handwritten digits and letters, by writer.

Caldas et al.: LEAF, A Benchmark for Federated Settings, 2018. The images are from NIST Special Database 19.

Every writer is a natural client, and a tenth of each one's images is for testing, as published. A copy of a part of the
set holds next to nothing of some writers: those of fewer than 50 images are left out. The complete set keeps them: all
of its 3,597 writers are the paper's clients, and some have fewer than 40.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from snowball.data.base import Location, Split
from snowball.data.images import Array, ImageDataset, image_fault, label_fault
from snowball.data.io.cache import Tensors, kept
from snowball.data.io.formats import read_npz, reading
from snowball.data.io.leaf import leaf_files, read_writers
from snowball.data.io.locate import first_file, locate, missing, provenance
from snowball.data.partition import Indices, natural
from snowball.errors import DataError
from snowball.rng import numpy_stream

CLASSES, SHAPE = 62, (28, 28)
KEYS = ("x", "y", "writer", "writer_ids")
LIMIT = 1 << 30  # bytes of the images at most; those of the complete set are 641 million
COMPLETE = (3597, 817_851)  # writers and images
MINIMUM = 50  # images of a writer, in a copy of a part
SEED = 0

# What the published experiments take from pixels and divide them by: paper is white, so that ink is far below zero.
MEAN, STD = 0.9637, 0.1550


@dataclass(frozen=True, eq=False)
class Written:
    """Images as they come, and who wrote them."""

    images: Array  # (n, 28, 28) uint8
    labels: Array  # (n,)
    writer: Array  # (n,) index into the ids
    ids: list[str]

    def some(self, name: str, parts: Sequence[Indices]) -> Tensors:
        """Some of the images, and their labels."""
        index = np.concatenate(parts)
        images, labels = torch.from_numpy(self.images[index]), torch.from_numpy(self.labels[index].astype(np.uint8))
        return {name: images.unsqueeze(1), f"{name}_labels": labels}


@dataclass(frozen=True)
class Femnist:
    """Where FEMNIST is found, and how it is read."""

    name: str = "femnist"
    summary: str = "817,851 handwritten digits and letters of 3,597 writers in 62 classes, 28x28"
    needs: str = "femnist.npz or the json files that https://github.com/TalwalkarLab/leaf makes"

    def locate(self) -> Location | None:
        """The first find in $SNOWBALL_DATA and the user's cache."""
        return locate(self._find)

    def _find(self, folder: Path) -> Path | None:
        own = folder / self.name
        made = (place for place in (own, own / "data") if leaf_files(place))
        return first_file(place / "femnist.npz" for place in (folder, own)) or next(made, None)

    def fetch(self) -> Location:
        """Where the set is on this machine; nobody offers it in a form that is read here."""
        if location := self.locate():
            return location
        raise missing(self.name, "it cannot be downloaded ready to use", self.needs)

    def load(self) -> ImageDataset:
        """The data set in memory, from wherever it is found first."""
        location = self.fetch()
        files = [location.path] if location.path.is_file() else leaf_files(location.path)
        tensors = kept(self.name, files, lambda: parse(location.path, files))
        train, test = (Split(tensors[part], tensors[f"{part}_labels"].long()) for part in ("train", "test"))
        complete = tuple(tensors["counts"].tolist()) == COMPLETE
        record = provenance(location, train, test, complete, writers=int(tensors["groups"][-1]) + 1)
        return ImageDataset(self.name, CLASSES, train, test, record, tensors["groups"], mean=(MEAN,), std=(STD,))


def parse(path: Path, files: list[Path]) -> Tensors:
    """The samples, divided into training and test; `counts` are the writers and images that there are in all."""
    written = read_archive(path) if path.is_file() else read_files(files)
    counts = len(written.ids), len(written.images)
    minimum = 1 if counts == COMPLETE else MINIMUM
    if np.unique(written.writer, return_counts=True)[1].max() < minimum:
        raise DataError(f"{path} is too little: none of its {len(written.ids)} writers has {minimum} images")
    return {**divide(written, minimum), "counts": torch.tensor(counts)}


def read_archive(path: Path) -> Written:
    """What a NumPy archive holds."""
    arrays = images, labels, writer, ids = read_npz(path, KEYS, limit=LIMIT)
    with reading(path):  # names can be made of what is no text
        if fault := archive_fault(*arrays):
            raise ValueError(fault)
        "".join(names := ids.ravel().tolist()).encode()
    return Written(images, labels, writer, names)


def archive_fault(images: Array, labels: Array, writer: Array, ids: Array) -> str:
    """What is wrong with the arrays of an archive, if anything."""
    if fault := image_fault(images, SHAPE):
        return f"x {fault}"
    if fault := label_fault(labels, len(images), CLASSES):
        return f"y {fault}"
    if ids.dtype.kind != "U" or len(set(ids.flat)) != ids.size:
        return "writer_ids is no list of different names"
    if fault := label_fault(writer, len(images), ids.size):
        return f"writer {fault}"
    if len(absent := np.setdiff1d(np.arange(ids.size), writer)):
        return f"writer {str(ids.flat[absent[0]])[:40]!r} has no images"
    return ""


def read_files(files: list[Path]) -> Written:
    """What the files that LEAF made hold."""
    writers = read_writers(files, CLASSES)
    images, labels = zip(*writers.values(), strict=True)
    writer = np.repeat(np.arange(len(writers)), list(map(len, labels)))
    return Written(np.concatenate(images), np.concatenate(labels), writer, list(writers))


def divide(written: Written, minimum: int) -> Tensors:
    """Images and labels to train on and to test on, and the writer of each one that is trained on.

    Writers are numbered by ascending id, and each is divided by a stream of their own: in whatever order and together
    with whomever they are read, the same images are for testing.
    """
    rank = np.empty(len(written.ids), np.int64)
    rank[sorted(range(len(rank)), key=written.ids.__getitem__)] = np.arange(len(rank))
    train, test = [], []
    for part in natural(torch.from_numpy(rank[written.writer]), minimum):
        name = written.ids[int(written.writer[part[0]])]
        shuffled = numpy_stream(SEED, "femnist", "test", name).permutation(part.numpy())
        cut = len(part) * 9 // 10
        train.append(np.sort(shuffled[:cut]))
        test.append(np.sort(shuffled[cut:]))
    groups = torch.arange(len(train)).repeat_interleave(torch.tensor(list(map(len, train))))
    return {**written.some("train", train), **written.some("test", test), "groups": groups}


FEMNIST = Femnist()
