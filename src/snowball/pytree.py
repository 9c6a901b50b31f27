"""Nested dicts, lists and tuples of tensors, numbers and strings as bytes: tensors and JSON, nothing pickled."""

import json
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor


def pack(value: Any) -> bytes:
    """A pytree as bytes: tensors, and JSON beside them; nothing at all for None."""
    if value is None:
        return b""
    tensors: dict[str, Tensor] = {}
    tree = encode(value, tensors)
    return save(tensors, {"tree": json.dumps(tree)})


def unpack(content: bytes) -> Any:
    """The pytree behind what `pack` gave."""
    if not content:
        return None
    length = int.from_bytes(content[:8], "little")  # of the header, as safetensors has it
    header = json.loads(content[8 : 8 + length])
    return decode(json.loads(header["__metadata__"]["tree"]), load(content))


def encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A pytree as JSON; its tensors go into `tensors` and leave their names."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[encode(key, tensors), encode(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [encode(entry, tensors) for entry in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a state holds dicts, lists, tuples, tensors, numbers and strings, not {type(value).__name__}")


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The pytree behind what `encode` gave."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {decode(key, tensors): decode(entry, tensors) for key, entry in content}
    entries = [decode(entry, tensors) for entry in content]
    return tuple(entries) if kind == "tuple" else entries
