"""Measures the lengths of models and of their changes; the same pass over the numbers proves that they are finite."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from snowball.updates import split_blocks


def measure_norm(tensors: Mapping[str, Tensor], origin: Mapping[str, Tensor] | None = None) -> float:
    """Return the Euclidean norm of a model's floating tensors, or of their difference from `origin`."""
    return math.sqrt(
        sum(
            sum_squared_blocks(tensor, None if origin is None else origin[name], torch.float64)
            for name, tensor in tensors.items()
            if tensor.is_floating_point()
        )
    )


def sum_squared_changes(tensor: Tensor, origin: Tensor) -> float:
    """Return the squared norm of a tensor's difference from `origin`, roughly; finite only if all its numbers are.

    Blocks are squared in float32, which is twice as fast as in float64, unless they overflow. The error is below a
    thousandth, and replies are compared by factors of a thousand.
    """
    squares = sum_squared_blocks(tensor, origin, torch.float32)
    return squares if math.isfinite(squares) else sum_squared_blocks(tensor, origin, torch.float64)


def sum_squared_blocks(tensor: Tensor, origin: Tensor | None, dtype: torch.dtype) -> float:
    """Return the squared norm of a tensor, or of its difference from `origin`; blocks that fit a cache have a type."""
    blocks = split_blocks(tensor)
    starts = [torch.zeros(())] * len(blocks) if origin is None else split_blocks(origin)
    changes = (block.to(dtype) - start.to(dtype) for block, start in zip(blocks, starts, strict=True))
    return sum(float(torch.dot(change, change)) for change in changes)
