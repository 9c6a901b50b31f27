"""Reader of the json files that LEAF makes of its data sets: `{"user_data": {id: {"x": [...], "y": [...]}}}`.

Caldas et al.: LEAF, A Benchmark for Federated Settings, 2018.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from snowball.data.images import label_fault
from snowball.data.io.formats import Bytes, reading, unpacked

LIMIT = 1 << 29
"""Bytes of one file at most, 512 MiB: three times what a hundred of the writers need."""

Drawn = tuple[Bytes, Bytes]  # (n, 28, 28) images and (n,) labels


def leaf_files(folder: Path) -> list[Path]:
    """The files of a set that was made there, divided into training and test or not; none unless there are some."""
    for place in (folder / "all_data", folder):
        if files := sorted(place.glob("all_data*.json")):
            return files
    train, test = (sorted((folder / name).glob("*.json")) for name in ("train", "test"))
    return [*train, *test] if train and test else []


def read_writers(paths: Iterable[Path], classes: int) -> dict[str, Drawn]:
    """The images and labels of every writer; one who is in several files has those of the first file first."""
    pieces: defaultdict[str, list[Drawn]] = defaultdict(list)
    for path in paths:
        for writer, drawn in read_file(path, classes):
            pieces[writer].append(drawn)
    joined = {}
    for writer in sorted(pieces):
        images, labels = zip(*pieces.pop(writer), strict=True)
        joined[writer] = np.concatenate(images), np.concatenate(labels)
    return joined


def read_file(path: Path, classes: int) -> Iterator[tuple[str, Drawn]]:
    """The writers of one file."""

    def compact(part: dict[str, Any]) -> Any:
        """A writer's numbers as bytes, as soon as they are there: as Python objects they are 30 times as large."""
        if not {"x", "y"} <= set(part):
            return part
        try:
            return as_bytes(part["x"], part["y"], classes)
        except Exception as error:  # whatever a list of anything makes NumPy raise
            return str(error)

    with reading(path), unpacked(path, LIMIT) as stream:
        contents = json.loads(stream.read(), object_hook=compact)
        writers = contents.get("user_data") if isinstance(contents, dict) else None
        if not isinstance(writers, dict) or not writers:
            raise ValueError("it has no writers as its user_data")
        for writer, drawn in writers.items():
            if not isinstance(drawn, tuple):
                raise ValueError(f"writer {writer[:40]!r} {drawn if isinstance(drawn, str) else 'has no x and y'}")
            writer.encode()  # half a character is no name
            yield writer, drawn


def as_bytes(x: Any, y: Any, classes: int) -> Drawn:
    """A writer's images, given as numbers from 0 to 1, and their labels."""
    if not (sizes := {len(image) for image in x}):
        raise ValueError("has no images")
    if sizes != {784}:
        raise ValueError(f"has images of {min(sizes)} to {max(sizes)} numbers, not 784")
    pixels = np.asarray(x, np.float32)
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(f"has pixels from {pixels.min()} to {pixels.max()}, not within 0 to 1")
    labels = np.asarray(y)
    if fault := label_fault(labels, len(pixels), classes):
        raise ValueError(f"has a y that {fault}")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
