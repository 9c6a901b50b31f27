"""Caches parsed data in the user's cache folder, keyed by the checksums of the source files."""

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from snowball.data.io.formats import compute_sha256, convert_read_errors
from snowball.data.io.locate import get_cache_folder
from snowball.records.drafts import temporary_folder
from snowball.records.files import replace_file

CACHE_VERSION = 2
"""Version of the cached data. Increase it when a parser's result changes."""

MIN_REMEMBERED_BYTES = 1 << 26
"""Checksums of files of at least this size are cached too: hashing gigabytes takes seconds."""

Tensors = dict[str, Tensor]


def load_cached(name: str, sources: Iterable[Path], parse: Callable[[], Tensors]) -> Tensors:
    """Return the parsed contents of these files from the cache, and parse and cache them if they are not there.

    Tensors are memory-mapped from the cache, so that processes share them.
    """
    key = hash_parts(CACHE_VERSION, name, *map(compute_checksum, sources))
    path = get_cache_folder() / "parsed" / f"{name}-{key[:32]}.safetensors"
    if (known := read_cached(path)) is not None:
        return known
    tensors = parse()
    metadata = {"sha256": hash_tensors(tensors)}
    write_cached(path, lambda part: save_file(tensors, part, metadata))
    return read_cached(path) or tensors


def read_cached(path: Path) -> Tensors | None:
    """Read a file of the cache; return None if it is absent or damaged in any way."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors if file.metadata()["sha256"] == hash_tensors(tensors) else None
    except Exception:  # damage can raise anything, and the contents can be parsed again
        return None


def write_cached(path: Path, save: Callable[[Path], object]) -> None:
    """Write a file to the cache atomically. A cache that cannot be written is not an error."""
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(path.parent) as folder:
            save(folder / path.name)
            replace_file(folder / path.name, path)


def compute_checksum(path: Path) -> str:
    """Compute the sha256 of a file. That of a large file is cached until its size or modification time changes."""
    with convert_read_errors(path):
        status = path.stat()
        if status.st_size < MIN_REMEMBERED_BYTES:
            return compute_sha256(path)
    identity = hash_parts(str(path.resolve()), status.st_size, status.st_mtime_ns)
    note = get_cache_folder() / "checksums" / identity
    with suppress(OSError, ValueError):
        known = note.read_text("ascii")
        if len(bytes.fromhex(known)) == 32:
            return known
    with convert_read_errors(path):
        found = compute_sha256(path)
    write_cached(note, lambda part: part.write_text(found, "ascii"))
    return found


def hash_parts(*parts: str | int) -> str:
    """Return a checksum of strings and numbers."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hash_tensors(tensors: Tensors) -> str:
    """Return a checksum of the names, types, shapes and values of tensors."""
    result = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        result.update(tensor.contiguous().numpy().data)
    return result.hexdigest()


def pack_words(words: Iterable[str]) -> Tensor:
    """Pack words into a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(list(words)), "ascii"), dtype=torch.uint8)


def unpack_words(packed: Tensor) -> list[str]:
    """Unpack the words in a tensor of bytes."""
    words: list[str] = json.loads(packed.numpy().tobytes())
    return words
