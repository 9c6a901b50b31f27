"""Converts nested dicts, lists and tuples of tensors, numbers and strings to bytes: safetensors and JSON, no pickle."""

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
    length = int.from_bytes(content[:8], "little")  # the header's length, as safetensors writes it
    header = json.loads(content[8 : 8 + length])
    return decode(json.loads(header["__metadata__"]["tree"]), load(content), fetch)


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
