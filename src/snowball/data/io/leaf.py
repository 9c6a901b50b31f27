"""Reader of the JSON files of LEAF: `{"user_data": {id: {"x": [...], "y": [...]}}}`.

Caldas et al.: LEAF, A Benchmark for Federated Settings, 2018.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from snowball.data.images import find_label_fault
from snowball.data.io.formats import Bytes, convert_read_errors, open_unpacked

MAX_FILE_BYTES = 1 << 29
"""Maximum size of one file, 512 MiB: three times the size of a hundred writers."""

WriterSamples = tuple[Bytes, Bytes]  # (n, 28, 28) images and (n,) labels


def find_leaf_files(folder: Path) -> list[Path]:
    """Return the LEAF files in a folder, split into training and test or not; empty if there are none."""
    for candidate in (folder / "all_data", folder):
        if files := sorted(candidate.glob("all_data*.json")):
            return files
    train, test = (sorted((folder / name).glob("*.json")) for name in ("train", "test"))
    return [*train, *test] if train and test else []


def read_writers(paths: Iterable[Path], classes: int) -> dict[str, WriterSamples]:
    """Read the images and labels of every writer, joined in file order if a writer is in several files."""
    pieces: defaultdict[str, list[WriterSamples]] = defaultdict(list)
    for path in paths:
        for writer, samples in read_leaf_file(path, classes):
            pieces[writer].append(samples)
    joined = {}
    for writer in sorted(pieces):
        images, labels = zip(*pieces.pop(writer), strict=True)
        joined[writer] = np.concatenate(images), np.concatenate(labels)
    return joined


def read_leaf_file(path: Path, classes: int) -> Iterator[tuple[str, WriterSamples]]:
    """Read the writers of one file."""

    def compact(part: dict[str, Any]) -> Any:
        """Convert a writer's numbers to bytes while parsing: as Python objects they take 30 times the memory."""
        if not {"x", "y"} <= set(part):
            return part
        try:
            return convert_samples(part["x"], part["y"], classes)
        except Exception as error:  # NumPy can raise anything on arbitrary lists
            return str(error)

    with convert_read_errors(path), open_unpacked(path, MAX_FILE_BYTES) as stream:
        contents = json.loads(stream.read(), object_hook=compact)
        writers = contents.get("user_data") if isinstance(contents, dict) else None
        if not isinstance(writers, dict) or not writers:
            raise ValueError("its user_data has no writers")
        for writer, samples in writers.items():
            if not isinstance(samples, tuple):
                raise ValueError(f"writer {writer[:40]!r} {samples if isinstance(samples, str) else 'has no x and y'}")
            writer.encode()  # rejects lone surrogates
            yield writer, samples


def convert_samples(x: Any, y: Any, classes: int) -> WriterSamples:
    """Convert a writer's images, given as numbers from 0 to 1, and their labels to bytes."""
    if not (sizes := {len(image) for image in x}):
        raise ValueError("has no images")
    if sizes != {784}:
        raise ValueError(f"has images of {min(sizes)} to {max(sizes)} numbers, not 784")
    pixels = np.asarray(x, np.float32)
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError(f"has pixels from {pixels.min()} to {pixels.max()}, not within 0 to 1")
    labels = np.asarray(y)
    if fault := find_label_fault(labels, len(pixels), classes):
        raise ValueError(f"has a y that {fault}")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 28, 28), labels.astype(np.uint8)
