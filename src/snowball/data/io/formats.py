"""Readers of file formats that several data sets use: NumPy archives, idx files, and compressed files.

The files are not trusted: nothing is unpickled, and sizes in headers are checked against the actual bytes.
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

MAX_UNPACKED_BYTES = 1 << 28
"""Maximum size of one array, text or download, 256 MiB: enough for most complete sets, and a guard against bombs."""

BUFFER_BYTES = 1 << 20

Bytes = npt.NDArray[np.uint8]


def compute_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make_corrupt_error(path: Path, fault: str, expected: str = "") -> DataError:
    """Return the error for a file that cannot be used; `expected` is the checksum of a good copy."""
    try:
        found = compute_sha256(path)
    except OSError as error:
        return DataError(f"{path} cannot be read ({error})")
    good = f", a good copy has {expected}" if expected else ""
    return DataError(f"{path} is corrupt: {fault} (its sha256 is {found}{good}); delete or replace it")


@contextmanager
def convert_read_errors(path: Path, expected: str = "") -> Iterator[None]:
    """Convert any exception that a broken file causes into one sentence that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise make_corrupt_error(path, _summarise_error(error), expected) from error


class BoundedStream(io.RawIOBase):
    """A stream that raises once more than `limit` bytes are read, as a guard against compression bombs."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        self.stream = stream
        self.limit = self.left = limit

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, none at the end."""
        count = self.stream.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise ValueError(f"it unpacks to more than the limit of {self.limit} bytes")
        return count


@contextmanager
def open_unpacked(path: Path, limit: int | None = None, member: str = "") -> Iterator[io.BufferedReader]:
    """Open a plain file, a .gz file or a member of a .zip archive; `MAX_UNPACKED_BYTES` by default is the limit."""
    with _open_raw(path, member) as stream:
        yield io.BufferedReader(BoundedStream(stream, MAX_UNPACKED_BYTES if limit is None else limit), BUFFER_BYTES)


@contextmanager
def _open_raw(path: Path, member: str) -> Iterator[io.BufferedIOBase]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield cast(io.BufferedIOBase, stream)
    else:
        with gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream


def read_npz(
    path: Path, keys: Sequence[str], expected: str = "", limit: int | None = None
) -> list[npt.NDArray[np.generic]]:
    """Read the named arrays of a NumPy archive; `MAX_UNPACKED_BYTES` per array by default is the limit."""
    with convert_read_errors(path, expected), zipfile.ZipFile(path) as archive:
        return [_read_member(archive, key, MAX_UNPACKED_BYTES if limit is None else limit) for key in keys]


def _read_member(archive: zipfile.ZipFile, key: str, limit: int) -> npt.NDArray[np.generic]:
    member = archive.getinfo(f"{key}.npy")
    if member.file_size > limit:
        raise ValueError(f"{key} unpacks to {member.file_size} bytes, the limit is {limit}")
    with archive.open(member) as stream:
        _check_size(key, stream, member.file_size)
    with archive.open(member) as stream:
        array: npt.NDArray[np.generic] = npy.read_array(stream, allow_pickle=False)
        stream.read()  # to the end, where the archive checks its checksum
    return np.asarray(array, order="C")


def _check_size(key: str, stream: IO[bytes], size: int) -> None:
    npy.read_magic(stream)
    shape, _, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects, which are never unpickled")
    promised, follow = prod(shape) * dtype.itemsize, size - stream.tell()
    if promised != follow:
        raise ValueError(f"the header of {key} promises {promised} bytes, {follow} follow")


def read_idx(path: Path, dimensions: int) -> Bytes:
    """Read an idx file of bytes with this number of dimensions, compressed if its name ends in .gz."""
    with convert_read_errors(path), open_unpacked(path) as stream:
        return parse_idx(stream.read(), dimensions)


def parse_idx(data: bytes, dimensions: int) -> Bytes:
    """Parse an idx file: two zero bytes, the type (8: bytes), the number of dimensions, sizes, data."""
    magic = bytes([0, 0, 8, dimensions])
    if data[:4] != magic:
        raise ValueError(
            f"it starts with {data[:4].hex()}, not with {magic.hex()} like an idx file of {dimensions} dimensions"
        )
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise ValueError(f"it ends after {len(data)} of the {start} bytes of its header")
    shape = tuple(np.frombuffer(data, ">u4", dimensions, offset=4).tolist())
    if len(data) - start != prod(shape):
        raise ValueError(f"its header promises {prod(shape)} bytes, {len(data) - start} follow")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _summarise_error(error: Exception) -> str:
    message = error.args[0] if isinstance(error, KeyError) and error.args else error  # whose str() adds quotes
    return " ".join(str(message).split())[:300] or type(error).__name__
