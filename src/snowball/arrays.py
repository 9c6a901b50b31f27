"""Tensors and arrays that arrive from outside: reads them as real numbers, and tells whether they are finite."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snowball.errors import UpdateError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

ROW_BLOCK_ELEMENTS = 1 << 17
"""Elements of a row to read at a time: 512 KiB in float32, which fits a cache together with their sum in float64."""

Arrays = Mapping[str, Tensor | np.ndarray]


def allocate_rows(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised float32 or float64 tensor.

    NumPy asks the system for huge pages, and torch does not: without them, it takes three times as long to fill.
    """
    return torch.from_numpy(np.empty(shape, np.float64 if dtype == torch.float64 else np.float32))


def split_blocks(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return a tensor's numbers as blocks that fit a cache; views, if it is contiguous."""
    blocks: tuple[Tensor, ...] = tensor.reshape(-1).split(ROW_BLOCK_ELEMENTS)  # type: ignore[no-untyped-call]
    return blocks


@contextmanager
def accept_read_only(values: Any) -> Iterator[None]:
    """Silence torch's warning that an array is not writable, since nobody writes to it."""
    if isinstance(values, Tensor) or (isinstance(values, np.ndarray) and values.flags.writeable):
        yield  # changing filters takes longer than the conversion
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        yield


def convert_to_tensor(values: Any, owner: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return a value as a tensor of real numbers, sharing its memory if possible."""
    try:
        with accept_read_only(values):
            tensor = torch.as_tensor(values, dtype=dtype).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UpdateError(f"{owner} cannot be read as numbers: {str(error).partition(chr(10))[0]}") from error
    if tensor.is_complex() or tensor.layout != torch.strided:
        raise UpdateError(
            f"{owner} must be a plain array of real numbers, got {tensor.dtype} in layout {tensor.layout}"
        )
    return tensor


def check_mapping(value: Any, owner: str, content: str = "tensors") -> None:
    """Refuse anything but a mapping."""
    if not isinstance(value, Mapping):
        advice = ": pass its state_dict()" if isinstance(value, nn.Module) else ""
        raise UpdateError(f"{owner} must be a mapping of names to {content}, got {type(value).__name__}{advice}")


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite; a finite sum proves it in one fast pass."""
    return not tensor.is_floating_point() or bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def refuse_broken(tensors: Sequence[Tensor]) -> None:
    """Refuse an average that is not finite."""
    if not all(map(is_finite, tensors)):
        raise UpdateError("the average holds NaN or infinite numbers")
