"""State of a run between two rounds, and the checkpoint that stores it: tensors and JSON, nothing pickled.

Large tensors are separate files, named by a hash of their content: tensors that a round does not change are not written
again. The checkpoint of the round before stays, for the case that the last one is damaged.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.errors import RunError
from snowball.layout import Layout
from snowball.records.files import locate_before, write_bytes
from snowball.records.sealed import read_sealed, read_version, write_sealed
from snowball.serialization import pack_sealed

STATE_FILE, TENSOR_FOLDER = "state.safetensors", "tensors"
"""Contents of a checkpoint: a file, and a folder of the large tensors that the file names."""

MIN_STORED_BYTES = 2**20
"""Size from which a tensor is stored in its own file."""

ClientStates = dict[str, Any]
"""States that clients keep between rounds, by client."""


@dataclass(eq=False)
class RunState:
    """State of a run; `simulate` updates it after every round.

    Attributes:
        round: rounds completed.
        base: the global row.
        defense: the state of the defense.
        clients: states that clients keep between rounds, if the defense takes part in their training.
        buffers: the buffers of the global model.
        attack: the memory of the attack, if it keeps one.
    """

    round: int
    base: Tensor
    defense: Any = None
    clients: ClientStates = field(default_factory=dict)
    buffers: Buffers = field(default_factory=dict)
    attack: Any = None


def save_state(state: RunState, folder: Path) -> None:
    """Replace the checkpoint in a folder atomically; the one before stays beside it."""

    def store(tensor: Tensor) -> str | None:
        if tensor.nbytes < MIN_STORED_BYTES:
            return None
        if not (path := locate_tensor(folder, name := hash_tensor(tensor))).exists():
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, pack_sealed(tensor))
        return name

    folder.mkdir(exist_ok=True)
    write_sealed(folder / STATE_FILE, vars(state), store)
    delete_unused(folder)


def load_state(folder: Path, rounds: int, layout: Layout) -> RunState | None:
    """Load the checkpoint in a folder, or None; refuse one that does not fit the number of rounds and the layout.

    If it is damaged, the one before takes its place, with a warning.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return None
    content = read_sealed(path, "a checkpoint of a run", lambda name: load_tensor(folder, name), restore=True)
    try:
        state = RunState(**content)
    except TypeError as error:
        raise RunError(f"{path} is not a checkpoint of a run: {error}") from error
    if fault := find_fault(state, rounds, layout):
        raise RunError(f"{path} is not a checkpoint of this run: {fault}")
    delete_unused(folder)  # a damaged tensor of the round to be repeated would not be written again
    return state


def delete_unused(folder: Path) -> None:
    """Delete the large tensors that neither checkpoint in a folder uses."""
    used = {name for path in (folder / STATE_FILE, locate_before(folder / STATE_FILE)) for name in list_stored(path)}
    for path in (folder / TENSOR_FOLDER).glob("*.safetensors"):
        if path.stem not in used:
            path.unlink(missing_ok=True)


def list_stored(path: Path) -> set[str]:
    """Return all words in a checkpoint's header that can be names of large tensors."""
    if not path.exists():
        return set()
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, path.stat().st_size))
    return {name.decode() for name in re.findall(rb"\b[0-9a-f]{64}\b", header)}


def load_tensor(folder: Path, name: str) -> Tensor:
    """Load a large tensor of the checkpoint in a folder."""
    path = locate_tensor(folder, name)
    try:
        tensor = read_version(path)
    except ValueError as error:
        raise ValueError(f"it needs {path}, and {error}") from error
    if not isinstance(tensor, Tensor) or hash_tensor(tensor) != name:
        raise ValueError(f"it needs {path}, which does not hold what was written into it")
    return tensor


def locate_tensor(folder: Path, name: str) -> Path:
    """Return the file of a large tensor."""
    return folder / TENSOR_FOLDER / f"{name}.safetensors"


def hash_tensor(tensor: Tensor) -> str:
    """Return a hash of a tensor's content, shape and type."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def find_fault(state: RunState, rounds: int, layout: Layout) -> str:
    """Return why a state does not fit the number of rounds and the layout; empty if it fits."""
    if type(state.round) is not int or not 0 <= state.round <= rounds:
        return f"its round cannot be {str(state.round)[:60]} in a run of {rounds}"
    base = state.base
    if not isinstance(base, Tensor) or base.dtype != torch.float32 or base.shape != (layout.width,):
        return f"its model is not a float32 row of {layout.width} numbers"
    if not base.isfinite().all():
        return "its model holds numbers that are not finite"
    if not isinstance(state.defense, dict | None):
        return f"the defense's state cannot be a {type(state.defense).__name__}"
    if not isinstance(state.clients, dict):
        return f"the clients' state cannot be a {type(state.clients).__name__}"
    if not isinstance(state.buffers, dict) or not all(map(is_finite_tensor, state.buffers.values())):
        return "its model's buffers are not finite tensors by name"
    if not isinstance(state.attack, dict | None):
        return f"the attack's memory cannot be a {type(state.attack).__name__}"
    return ""


def is_finite_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of finite numbers."""
    return isinstance(value, Tensor) and bool(value.isfinite().all())
