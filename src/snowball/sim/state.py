"""Where a run stands between two rounds, and the checkpoint that keeps it: tensors and JSON, nothing pickled."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from snowball.errors import RunError
from snowball.records import write_bytes
from snowball.sim.buffers import Buffers
from snowball.updates import Layout

FILE = "state.safetensors"

Memory = dict[str, Any]
"""What clients keep between rounds, by client."""


@dataclass(eq=False)
class State:
    """Where a run stands; `simulate` moves it on.

    Attributes:
        round: rounds done.
        base: the global row.
        defense: what the defense wants to see again.
        clients: what clients keep between rounds, where the defense acts in their training.
        buffers: what the global model holds beside its parameters.
    """

    round: int
    base: Tensor
    defense: Any = None
    clients: Memory = field(default_factory=dict)
    buffers: Buffers = field(default_factory=dict)


def save_state(state: State, folder: Path) -> None:
    """Replace the checkpoint in a folder, whole or not at all."""
    folder.mkdir(exist_ok=True)
    write_bytes(folder / FILE, pack(vars(state)))


def load_state(folder: Path, rounds: int, layout: Layout) -> State | None:
    """The checkpoint in a folder, if there is one; it must fit a run of so many rounds and a model of this layout."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state = State(**unpack(path.read_bytes()))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is not a checkpoint of a run: {error}") from error
    if fault := state_fault(state, rounds, layout):
        raise RunError(f"{path} is not a checkpoint of this run: {fault}")
    return state


def state_fault(state: State, rounds: int, layout: Layout) -> str:
    """What is wrong with a state for a run of so many rounds and a model of this layout, if anything."""
    if type(state.round) is not int or not 0 <= state.round <= rounds:
        return f"its round cannot be {str(state.round)[:60]} in a run of {rounds}"
    base = state.base
    if not isinstance(base, Tensor) or base.dtype != torch.float32 or base.shape != (layout.width,):
        return f"its model is no float32 row of {layout.width} numbers"
    if not base.isfinite().all():
        return "its model holds numbers that are not finite"
    if not isinstance(state.defense, dict | None):
        return f"the defense's state cannot be a {type(state.defense).__name__}"
    if not isinstance(state.clients, dict):
        return f"the clients' state cannot be a {type(state.clients).__name__}"
    if not isinstance(state.buffers, dict) or not all(map(is_finite, state.buffers.values())):
        return "its model's buffers are not finite tensors by name"
    return ""


def is_finite(value: Any) -> bool:
    """Whether a value is a tensor of finite numbers."""
    return isinstance(value, Tensor) and bool(value.isfinite().all())


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
