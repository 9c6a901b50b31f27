"""Where a run stands between two rounds, and the checkpoint that keeps it: tensors and JSON, nothing pickled.

Large tensors are files of their own, named for their content: what a round did not change is not written again.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from snowball.buffers import Buffers
from snowball.errors import RunError
from snowball.records.files import write_bytes
from snowball.serialization import pack, unpack
from snowball.updates import Layout

FILE, TENSORS = "state.safetensors", "tensors"
"""What a checkpoint consists of: a file, and a folder of the large tensors that it names."""

MIN_STORED_BYTES = 2**20
"""Bytes from which on a tensor is a file of its own."""

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
    stored: set[str] = set()

    def store(tensor: Tensor) -> str | None:
        if tensor.nbytes < MIN_STORED_BYTES:
            return None
        stored.add(name := hash_tensor(tensor))
        if not (path := locate(folder, name)).exists():
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, pack(tensor))
        return name

    folder.mkdir(exist_ok=True)
    write_bytes(folder / FILE, pack(vars(state), store))
    for path in (folder / TENSORS).glob("*.safetensors*"):  # drafts too, which a crash may leave
        if path.stem not in stored:
            path.unlink(missing_ok=True)


def load_state(folder: Path, rounds: int, layout: Layout) -> State | None:
    """The checkpoint in a folder, if there is one; it must fit a run of so many rounds and a model of this layout."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state = State(**unpack(path.read_bytes(), lambda name: load_tensor(folder, name)))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is not a checkpoint of a run: {error}") from error
    if fault := state_fault(state, rounds, layout):
        raise RunError(f"{path} is not a checkpoint of this run: {fault}")
    return state


def load_tensor(folder: Path, name: str) -> Tensor:
    """A large tensor of the checkpoint in a folder."""
    tensor = unpack(locate(folder, name).read_bytes())
    if not isinstance(tensor, Tensor) or hash_tensor(tensor) != name:
        raise ValueError(f"{locate(folder, name)} does not hold what was written into it")
    return tensor


def locate(folder: Path, name: str) -> Path:
    """The file of a large tensor."""
    return folder / TENSORS / f"{name}.safetensors"


def hash_tensor(tensor: Tensor) -> str:
    """A name for a tensor that no other content has."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
