"""Readers of the file formats that several data sets come in: NumPy archives, and anything compressed.

The files are not ours: nothing is unpickled, and no size is believed before it is compared with the bytes at hand.
"""

import gzip
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from snowball.errors import DataError

LIMIT = 1 << 28
"""Bytes of one array, text or download at most, 256 MiB: enough for most complete sets, and no bomb."""

BUFFER = 1 << 20

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


@contextmanager
def reading(path: Path, expected: str = "") -> Iterator[None]:
    """Turn whatever a broken file makes its readers raise into one sentence that names it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise corrupt(path, _said(error), expected) from error


class Bounded(io.RawIOBase):
    """A stream that gives so many bytes and then refuses, whatever was packed into so few."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        self.stream = stream
        self.limit = self.left = limit

    def readable(self) -> bool:
        """As every stream that is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes, none at the end."""
        count = self.stream.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise ValueError(f"it unpacks to more than the limit of {self.limit} bytes")
        return count


@contextmanager
def unpacked(path: Path, limit: int | None = None, member: str = "") -> Iterator[io.BufferedReader]:
    """The bytes of a file, of one compressed as .gz, or of a member of a .zip archive; `LIMIT` of them at most."""
    with _opened(path, member) as stream:
        yield io.BufferedReader(Bounded(stream, LIMIT if limit is None else limit), BUFFER)


@contextmanager
def _opened(path: Path, member: str) -> Iterator[io.BufferedIOBase]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield cast(io.BufferedIOBase, stream)
    else:
        with gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream


def read_npz(
    path: Path, keys: Sequence[str], expected: str = "", limit: int | None = None
) -> list[npt.NDArray[np.generic]]:
    """The named arrays of a NumPy archive, each of `LIMIT` bytes at most."""
    with reading(path, expected), zipfile.ZipFile(path) as archive:
        return [_read_member(archive, key, LIMIT if limit is None else limit) for key in keys]


def _read_member(archive: zipfile.ZipFile, key: str, limit: int) -> npt.NDArray[np.generic]:
    member = archive.getinfo(f"{key}.npy")
    if member.file_size > limit:
        raise ValueError(f"{key} unpacks to {member.file_size} bytes, the limit is {limit}")
    with archive.open(member) as stream:
        _check_size(key, stream, member.file_size)
    with archive.open(member) as stream:
        array: npt.NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
        stream.read()  # past the end, where the archive's checksum is compared
    return np.asarray(array, order="C")


def _check_size(key: str, stream: IO[bytes], size: int) -> None:
    npy.read_magic(stream)
    shape, _, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects, and nothing is unpickled")
    promised, follow = prod(shape) * dtype.itemsize, size - stream.tell()
    if promised != follow:
        raise ValueError(f"the header of {key} promises {promised} bytes, {follow} follow")


def read_idx(path: Path, dimensions: int) -> Bytes:
    """The bytes of an idx file of so many dimensions, compressed if its name ends in .gz."""
    with reading(path), unpacked(path) as stream:
        return parse_idx(stream.read(), dimensions)


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
    message = error.args[0] if isinstance(error, KeyError) and error.args else error  # which quotes what it says
    return " ".join(str(message).split())[:300] or type(error).__name__
