"""Trained weights that a federation starts from: files of safetensors, shipped or the user's own."""

import hashlib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from snowball.buffers import select_buffers
from snowball.errors import SettingError, describe_error
from snowball.registry import suggest_or_list
from snowball.settings import is_file

STARTS = resources.files("snowball").joinpath("models", "starts")
"""The folder of the shipped files."""

ENDING = ".safetensors"

MAX_BYTES_PER_NUMBER, MAX_HEADER_BYTES = 8, 1 << 20
"""Most bytes that a file may have for every number of the model, and for their names."""

MAX_SHOWN_NAMES = 3
"""Tensors that a sentence names."""


def list_starts() -> list[str]:
    """List the names of the shipped starts."""
    return sorted(file.name.removesuffix(ENDING) for file in STARTS.iterdir() if file.name.endswith(ENDING))


def locate_start(start: str) -> Traversable:
    """Return the file of a shipped start, or the user's own at a path."""
    shipped = list_starts()
    file = STARTS.joinpath(f"{start}{ENDING}") if start in shipped else Path(start)
    if not is_file(file):
        raise SettingError(
            f"model.start = {start!r} is neither a shipped start nor a file{suggest_or_list(start, shipped)}"
        )
    return file


def compute_start_sha256(start: str) -> str:
    """Return the SHA-256 of a start's file."""
    try:
        with locate_start(start).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        raise SettingError(f"model.start = {start!r} cannot be read: {error.strerror or error}") from error


def load_start(model: nn.Module, start: str, sha256: str | None) -> None:
    """Load a start's weights and buffers into a model, after checking that the file has this SHA-256."""
    expected: dict[str, Tensor] = {**dict(model.named_parameters()), **select_buffers(model)}
    content = read_start(start, sum(tensor.numel() for tensor in expected.values()))
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise SettingError(
            f"model.start = {start!r} has the SHA-256 {found}, and model.start_sha256 is {sha256}: "
            f"the file was changed; leave model.start_sha256 out to start from what it holds now"
        )
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise SettingError(f"model.start = {start!r} is not a file of safetensors: {describe_error(error)}") from error
    if fault := find_start_fault(tensors, expected):
        raise SettingError(f"model.start = {start!r} does not fit the model: {fault}")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(tensors[name])


def read_start(start: str, numbers: int) -> bytes:
    """Read a start's file, unless it is larger than that of a model of so many numbers can be."""
    limit = MAX_BYTES_PER_NUMBER * numbers + MAX_HEADER_BYTES
    try:
        with locate_start(start).open("rb") as file:
            content: bytes = file.read(limit + 1)
    except OSError as error:
        raise SettingError(f"model.start = {start!r} cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise SettingError(
            f"model.start = {start!r} does not fit the model: it has more than {limit:,} bytes for {numbers:,} numbers"
        )
    return content


def find_start_fault(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Describe why tensors are not the weights and buffers of a model; empty if they are."""
    if absent := [name for name in expected if name not in tensors]:
        return f"it lacks {join_names(absent)}"
    if unknown := [name for name in tensors if name not in expected]:
        return f"it has {join_names(unknown)}, which the model has not"
    for name, own in expected.items():
        if tensors[name].shape != own.shape:
            return f"{name} has the shape {tuple(tensors[name].shape)}, and {tuple(own.shape)} in the model"
        if tensors[name].is_floating_point() != own.is_floating_point():
            return f"{name} is {str(tensors[name].dtype)[6:]}, and {str(own.dtype)[6:]} in the model"
        if not tensors[name].to(own.dtype).isfinite().all():
            return f"{name} has numbers that are not finite"
    return ""


def join_names(names: list[str]) -> str:
    """Join the first of many names."""
    more = len(names) - MAX_SHOWN_NAMES
    return ", ".join(names[:MAX_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def pack_start(model: nn.Module) -> bytes:
    """Return a model's weights and buffers as the content of a start's file."""
    tensors = {**dict(model.named_parameters()), **select_buffers(model)}
    return save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
