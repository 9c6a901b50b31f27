"""Converts nested dicts, lists and tuples of tensors, numbers and strings to bytes: safetensors and JSON, no pickle.

Files are sealed: the header has the SHA-256 of all other bytes.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

Store = Callable[[Tensor], str | None]
"""Stores a tensor elsewhere and returns its name there; None leaves it in place."""

Fetch = Callable[[str], Tensor]
"""Returns the tensor that was stored under a name."""

SEAL_START = b'{"__metadata__":{"sealed":"'
"""Start of the header of a sealed file; the hexadecimal digits of its SHA-256 and the JSON tree follow."""

SEAL = slice(8 + len(SEAL_START), 8 + len(SEAL_START) + 64)
"""Position of the digits, behind the header's length of eight bytes."""


def leave_in_place(tensor: Tensor) -> None:
    """Leave every tensor in place."""


def refuse_stored(name: str) -> Tensor:
    """Refuse a tensor that is stored elsewhere."""
    raise ValueError(f"a tensor is stored elsewhere, as {name[:60]!r}")


def pack(value: Any, store: Store = leave_in_place) -> bytes:
    """Return a pytree as bytes: its tensors and a JSON tree; None gives no bytes."""
    if value is None:
        return b""
    tensors: dict[str, Tensor] = {}
    tree = encode(value, tensors, store)
    return save(tensors, {"tree": json.dumps(tree)})


def unpack(content: bytes, fetch: Fetch = refuse_stored) -> Any:
    """Return the pytree that `pack` was given."""
    if not content:
        return None
    return decode(json.loads(read_metadata(content)["tree"]), load(content), fetch)


def pack_sealed(value: Any, store: Store = leave_in_place) -> bytes:
    """Return a pytree as the bytes of a sealed file."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(encode(value, tensors, store))
    return seal(save(tensors, {"sealed": "0" * 64 + tree}))


def unpack_sealed(content: bytes, fetch: Fetch = refuse_stored) -> Any:
    """Return the pytree that `pack_sealed` was given; refuse bytes of which a single bit differs."""
    if not content.startswith(SEAL_START, 8):
        raise ValueError(
            "it has no SHA-256 of its content: it is damaged, or only the earlier version that wrote it can read it"
        )
    if content[SEAL] != compute_seal(content):
        raise ValueError("it is damaged: its content does not have the SHA-256 that it says")
    return decode(json.loads(read_metadata(content)["sealed"][64:]), load(content), fetch)


def seal(content: bytes) -> bytes:
    """Enter the SHA-256 into the bytes of a sealed file."""
    return content[: SEAL.start] + compute_seal(content) + content[SEAL.stop :]


def compute_seal(content: bytes) -> bytes:
    """Return the SHA-256, in hexadecimal digits, of all bytes but those digits."""
    digest = hashlib.sha256(content[: SEAL.start])
    digest.update(memoryview(content)[SEAL.stop :])
    return digest.hexdigest().encode()


def read_metadata(content: bytes) -> dict[str, str]:
    """Return what safetensors keeps beside the tensors."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


def encode(value: Any, tensors: dict[str, Tensor], store: Store = leave_in_place) -> Any:
    """Return a pytree as JSON, with names for its tensors; these go into `tensors`, or where `store` puts them."""
    if isinstance(value, Tensor):
        if (stored := store(value)) is not None:
            return {"stored": stored}
        name = str(len(tensors))
        tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[encode(key, tensors, store), encode(entry, tensors, store)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [encode(entry, tensors, store) for entry in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a state holds dicts, lists, tuples, tensors, numbers and strings, not {type(value).__name__}")


def decode(value: Any, tensors: dict[str, Tensor], fetch: Fetch = refuse_stored) -> Any:
    """Return the pytree that `encode` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "stored":
        return fetch(content)
    if kind == "dict":
        return {decode(key, tensors, fetch): decode(entry, tensors, fetch) for key, entry in content}
    entries = [decode(entry, tensors, fetch) for entry in content]
    return tuple(entries) if kind == "tuple" else entries
