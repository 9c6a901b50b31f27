"""What took long to parse, kept in the user's cache under the checksums of what it was parsed from."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from snowball.data.io.formats import reading, sha256
from snowball.data.io.locate import cache_folder

VERSION = 2
"""Of what is kept: a parser that gives something else needs another one."""

LARGE = 1 << 26
"""Bytes from which on a file's checksum is remembered: summing up gigabytes takes seconds."""

Tensors = dict[str, Tensor]


def kept(name: str, sources: Iterable[Path], parse: Callable[[], Tensors]) -> Tensors:
    """What was parsed from these files, now or in an earlier run; mapped from the cache, so that processes share it."""
    key = digest(VERSION, name, *map(checksum, sources))
    path = cache_folder() / "parsed" / f"{name}-{key[:32]}.safetensors"
    if (known := read(path)) is not None:
        return known
    tensors = parse()
    seal = {"sha256": contents(tensors)}
    write(path, lambda part: save_file(tensors, part, seal))
    return read(path) or tensors


def read(path: Path) -> Tensors | None:
    """What a file of the cache holds, unless it is absent or damaged in any way."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors if file.metadata()["sha256"] == contents(tensors) else None
    except Exception:  # whatever the damage makes it raise: what is kept can always be made again
        return None


def write(path: Path, save: Callable[[Path], object]) -> None:
    """Put a file into the cache, whole or not at all; a cache that takes no files is no fault."""
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            save(part)
            part.replace(path)


def checksum(path: Path) -> str:
    """The sha256 of a file; that of a large one is remembered for as long as its size and its time stay."""
    with reading(path):
        status = path.stat()
        if status.st_size < LARGE:
            return sha256(path)
    identity = digest(str(path.resolve()), status.st_size, status.st_mtime_ns)
    note = cache_folder() / "checksums" / identity
    with suppress(OSError, ValueError):
        known = note.read_text("ascii")
        if len(bytes.fromhex(known)) == 32:
            return known
    with reading(path):
        found = sha256(path)
    write(note, lambda part: part.write_text(found, "ascii"))
    return found


def digest(*parts: str | int) -> str:
    """A checksum of some words and numbers."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def contents(tensors: Tensors) -> str:
    """A checksum of all that tensors hold."""
    result = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        result.update(tensor.contiguous().numpy().data)
    return result.hexdigest()


def pack_words(words: Iterable[str]) -> Tensor:
    """Words as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(list(words)), "ascii"), dtype=torch.uint8)


def unpack_words(packed: Tensor) -> list[str]:
    """The words in a tensor of bytes."""
    words: list[str] = json.loads(packed.numpy().tobytes())
    return words
