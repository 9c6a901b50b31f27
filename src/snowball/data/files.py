"""Readers of the two file formats that image data sets come in: NumPy archives and the idx files of MNIST.

The files are not ours: nothing is unpickled, and no size is believed before it is compared with the bytes at hand.
"""

import gzip
import hashlib
import io
import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from snowball.errors import DataError

LIMIT = 1 << 28
"""Bytes of one array or download at most, 256 MiB: five times MNIST, and no bomb."""

Bytes = npt.NDArray[np.uint8]


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def corrupt(path: Path, fault: str, expected: str = "") -> DataError:
    """The error for a file that is there but cannot be used; `expected` is the checksum of a good copy."""
    try:
        found = sha256(path)
    except OSError as error:
        return DataError(f"{path} cannot be read ({error})")
    good = f", a good copy has {expected}" if expected else ""
    return DataError(f"{path} is corrupt: {fault} (its sha256 is {found}{good}); delete or replace it")


def read_npz(path: Path, keys: Sequence[str], expected: str = "") -> list[npt.NDArray[np.generic]]:
    """The named arrays of a NumPy archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [_read_member(archive, key) for key in keys]
    except Exception as error:  # whatever a broken file makes zipfile and NumPy raise
        raise corrupt(path, _said(error), expected) from error


def _read_member(archive: zipfile.ZipFile, key: str) -> npt.NDArray[np.generic]:
    member = archive.getinfo(f"{key}.npy")
    if member.file_size > LIMIT:
        raise ValueError(f"{key} unpacks to {member.file_size} bytes, the limit is {LIMIT}")
    data = archive.read(member)
    _check_size(key, data)
    array: npt.NDArray[np.generic] = npy.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def _check_size(key: str, data: bytes) -> None:
    stream = io.BytesIO(data)
    npy.read_magic(stream)
    shape, _, dtype = npy.read_array_header_1_0(stream)
    promised, follow = prod(shape) * dtype.itemsize, len(data) - stream.tell()
    if promised != follow:
        raise ValueError(f"the header of {key} promises {promised} bytes, {follow} follow")


def read_idx(path: Path, dimensions: int) -> Bytes:
    """The bytes of an idx file of so many dimensions, compressed if its name ends in .gz."""
    try:
        return parse_idx(_read_bounded(path), dimensions)
    except Exception as error:  # whatever a broken file makes gzip raise
        raise corrupt(path, _said(error)) from error


def _read_bounded(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        data = stream.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError(f"it unpacks to more than the limit of {LIMIT} bytes")
    return data


def parse_idx(data: bytes, dimensions: int) -> Bytes:
    """The array in an idx file: two zero bytes, the type (8: bytes), the number of dimensions, sizes, data."""
    magic = bytes([0, 0, 8, dimensions])
    if data[:4] != magic:
        raise ValueError(f"it starts with {data[:4].hex()}, an idx file of {dimensions} dimensions with {magic.hex()}")
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise ValueError(f"it ends after {len(data)} of the {start} bytes of its header")
    shape = tuple(np.frombuffer(data, ">u4", dimensions, offset=4).tolist())
    if len(data) - start != prod(shape):
        raise ValueError(f"its header promises {prod(shape)} bytes, {len(data) - start} follow")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _said(error: Exception) -> str:
    return " ".join(str(error).strip("\"'").split()) or type(error).__name__
