"""Where a run stands between two rounds, and the checkpoint that keeps it: tensors and JSON, nothing pickled."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from snowball.errors import RunError
from snowball.records import write_bytes
from snowball.updates import Layout

FILE = "state.safetensors"


@dataclass(eq=False)
class State:
    """Where a run stands; `simulate` moves it on.

    Attributes:
        round: rounds done.
        base: the global row.
        defense: what the defense wants to see again.
    """

    round: int
    base: Tensor
    defense: Any = None


def save_state(state: State, folder: Path) -> None:
    """Replace the checkpoint in a folder, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    tree = encode({"round": state.round, "base": state.base, "defense": state.defense}, tensors)
    content = save(tensors, {"state": json.dumps(tree)})
    folder.mkdir(exist_ok=True)
    write_bytes(folder / FILE, content)


def load_state(folder: Path, rounds: int, layout: Layout) -> State | None:
    """The checkpoint in a folder, if there is one; it must fit a run of so many rounds and a model of this layout."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            state = State(**decode(json.loads(file.metadata()["state"]), tensors))
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
    return ""


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
