"""Reader of the JSON files of LEAF: `{"user_data": {id: {"x": [...], "y": [...]}}}`.

Caldas et al.: LEAF, A Benchmark for Federated Settings, 2018.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from snowball.data.images import find_label_fault
from snowball.data.io.formats import Bytes, convert_read_errors, open_unpacked
from snowball.data.io.json_stream import JSONStream

MAX_FILE_BYTES = 1 << 29
"""Maximum size of one file, 512 MiB: three times the size of a hundred writers."""

PIXELS = 784
"""Numbers of an image, 28 times 28."""

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
    """Read the writers of one file, one image at a time."""
    with convert_read_errors(path), open_unpacked(path, MAX_FILE_BYTES) as stream:
        content, found = JSONStream(stream), False
        for key in content.iterate_keys() if content.peek() == b"{" else ():
            if key != "user_data" or content.peek() != b"{":
                content.skip_value()
                continue
            for writer in content.iterate_keys():
                found = True
                yield writer, read_writer(content, writer, classes)
        if not found:
            raise ValueError("its user_data has no writers")
        content.expect_end()


def read_writer(content: JSONStream, writer: str, classes: int) -> WriterSamples:
    """Read the images and labels of one writer."""
    writer.encode()  # rejects lone surrogates
    images: list[Bytes] | None = None
    labels = None
    try:
        for key in content.iterate_keys():
            if key == "x":
                images = list(read_images(content))
            elif key == "y":
                labels = np.asarray(content.read_piece())
            else:
                content.skip_value()
        if images is None or labels is None:
            raise ValueError("has no x and y")
        if not images:
            raise ValueError("has no images")
        if fault := find_label_fault(labels, len(images), classes):
            raise ValueError(f"has a y that {fault}")
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"writer {writer[:40]!r} {error}") from error
    return np.stack(images), labels.astype(np.uint8)


def read_images(content: JSONStream) -> Iterator[Bytes]:
    """Read a list of images, each a list of numbers from 0 to 1, and convert them to bytes."""
    for _ in content.iterate_items():
        numbers = content.read_piece()
        if not isinstance(numbers, list) or len(numbers) != PIXELS:
            count = len(numbers) if isinstance(numbers, list) else "no"
            raise ValueError(f"has an image of {count} numbers, not {PIXELS}")
        pixels = np.asarray(numbers, np.float32)
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            raise ValueError(f"has pixels from {pixels.min()} to {pixels.max()}, not within 0 to 1")
        yield np.rint(pixels * 255).astype(np.uint8).reshape(28, 28)
