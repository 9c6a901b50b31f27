"""Models of a caller's own: an `nn.Module`, or a function without arguments that makes one."""

import hashlib
import pickle
import pickletools
import re
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from snowball.errors import SettingError, describe_error
from snowball.models.randomness import draw_from

OwnModel = nn.Module | Callable[[], nn.Module]
"""A module, whose weights are the first global model, or a function that makes it with weights drawn by the seed."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The part of an object's description that differs from process to process."""


def copy_own_model(model: OwnModel, rng: torch.Generator) -> nn.Module:
    """Return a copy of a module, or the module that a function makes with this generator; refuse what cannot train."""
    made = model if isinstance(model, nn.Module) else call_own_model(model, rng)
    try:
        copy = deepcopy(made).cpu()
    except Exception as error:
        raise SettingError(f"the model cannot be copied: {describe_error(error)}") from error
    for name, parameter in copy.named_parameters():
        if is_lazy(parameter):
            raise SettingError(f"the model's {name} has no shape yet: run the model on one batch first")
        if parameter.dtype != torch.float32:
            raise SettingError(f"the model's {name} is {str(parameter.dtype)[6:]}, expected float32: call .float()")
    refuse_untrainable(copy, "the model")
    return copy


def call_own_model(make: Any, rng: torch.Generator) -> nn.Module:
    """Call a function that makes a module."""
    if not callable(make):
        raise SettingError(f"model must be an nn.Module or a function that makes one, got {type(make).__name__}")
    try:
        with draw_from(rng):
            made = make()
    except Exception as error:
        raise SettingError(f"model() failed, which must make a module: {describe_error(error)}") from error
    if not isinstance(made, nn.Module):
        raise SettingError(f"model() must make an nn.Module, got {type(made).__name__}")
    return made


def refuse_untrainable(model: nn.Module, name: str) -> None:
    """Refuse a model without parameters, or with parameters that are not trained."""
    parameters = dict(model.named_parameters())
    if not parameters:
        raise SettingError(f"{name} has no parameters, so there is nothing to train")
    frozen = [path for path, parameter in parameters.items() if not parameter.requires_grad]
    if frozen:
        raise SettingError(f"{name} has parameters that are not trained, {', '.join(frozen)}: make them buffers")


def refuse_misfit(model: nn.Module, name: str, inputs: Tensor, classes: int) -> None:
    """Refuse a model that does not give every sample of a batch one score per class."""
    batch = f"a batch of {str(inputs.dtype)[6:]} {tuple(inputs.shape)}"
    try:
        with torch.no_grad(), torch.random.fork_rng([]):
            scores = model.eval()(inputs)
    except Exception as error:
        raise SettingError(f"{name} fails on {batch}: {describe_error(error)}") from error
    if not isinstance(scores, Tensor):
        raise SettingError(f"{name} must return a tensor of class scores for {batch}, got {type(scores).__name__}")
    expected = (len(inputs), classes)
    if scores.shape != expected:
        shapes = f"shape {expected} for {batch} and {classes} classes, got {tuple(scores.shape)}"
        raise SettingError(f"{name} must return class scores of {shapes}")


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Describe a model for a run's record: its class, its size, and a checksum of its structure and tensors."""
    digest = hashlib.sha256(ADDRESS.sub("", repr(model)).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "sha256": digest.hexdigest(),
    }


def find_transfer_fault(model: nn.Module) -> str:
    """Describe why worker processes cannot receive a model; empty if they can.

    They import its classes by name. A notebook's or a session's own classes are in no file that they could import.
    """
    try:
        content = pack_model(model)
    except Exception as error:
        return describe_error(error)
    script = sys.modules["__main__"]
    importable = getattr(script, "__spec__", None) or getattr(script, "__file__", None)
    names = [argument for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)]
    if "__main__" in names and not importable:
        return f"{names[names.index('__main__') + 1]} is defined in this session and not in a module"
    return ""


def pack_model(model: nn.Module) -> bytes:
    """Pickle a model for a process that this one starts; the bytes go through a pipe and never into a file."""
    return pickle.dumps(model)


def unpack_model(content: bytes) -> nn.Module:
    """Unpickle a model that the parent of this process packed."""
    model: nn.Module = pickle.loads(content)
    return model
