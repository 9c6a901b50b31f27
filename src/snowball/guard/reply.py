"""What clients send, and what is wrong with it. Nothing in a reply is taken on trust but who sent it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.errors import UpdateError
from snowball.server import NOT_FINITE, describe_broken
from snowball.updates import as_tensor

MOST_EXAMPLES = 1 << 53
"""More than this cannot be counted exactly."""

LEAP = 1 << 31
"""How far a counter may get in a round."""

DETAIL = 200
"""Characters of a reason at most: names of tensors are the client's choice."""

VARIANCE = "running_var"
"""How the names of variances end: below zero they would make every prediction of the model NaN."""


@dataclass(frozen=True, eq=False)
class Reply:
    """One client's answer.

    Attributes:
        client: who sent it, as the server knows them.
        examples: how many examples the client says that it trained on.
        tensors: its model, by name.
    """

    client: str
    examples: Any
    tensors: Any


class Fault(Exception):  # noqa: N818
    """What is wrong with a reply: a reason and its detail."""


@dataclass(frozen=True, eq=False)
class Sane:
    """A reply that can be judged."""

    client: str
    examples: float
    tensors: dict[str, Tensor]


def words_of(error: Exception) -> str:
    """What an exception says, even one that cannot say it."""
    try:
        return f"{type(error).__name__}: {error}"[:DETAIL]
    except Exception:
        return type(error).__name__


def examples_of(reply: Reply) -> float:
    """How many examples a client claims, where that is a number that can be."""
    count = reply.examples
    if isinstance(count, Tensor | np.ndarray | np.generic) and math.prod(count.shape) == 1:
        count = count.item()
    if isinstance(count, bool) or not isinstance(count, int | float):
        raise Fault("examples", f"{type(count).__name__} is no number of examples")
    try:
        claimed = float(count)
    except OverflowError:
        claimed = math.inf
    if not 0 < claimed <= MOST_EXAMPLES:  # which NaN is not, either
        raise Fault("examples", f"it claims {claimed:.6g} examples")
    return claimed


def tensors_of(reply: Reply, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A reply's tensors, where they have the model's names, shapes and kinds of numbers, all finite."""
    if not isinstance(reply.tensors, Mapping):
        raise Fault("names", f"{type(reply.tensors).__name__} is no tensors by name")
    if set(reply.tensors) != set(model):
        missing, extra = sorted(set(model) - set(reply.tensors)), sorted(map(str, set(reply.tensors) - set(model)))
        raise Fault("names", f"missing {missing[:5]}, unexpected {extra[:5]}"[:DETAIL])
    return {name: tensor_of(name, reply.tensors[name], own) for name, own in model.items()}


def tensor_of(name: str, value: Any, own: Tensor) -> Tensor:
    """One tensor of a reply, like the model's own."""
    try:
        tensor = as_tensor(value, repr(name)).cpu()
    except (UpdateError, RuntimeError) as error:  # a meta tensor has no numbers to give
        raise Fault("dtype", " ".join(str(error).split())[:DETAIL]) from error
    if not fits(tensor.dtype, own.dtype):
        raise Fault("dtype", f"{name!r} is {tensor.dtype}, the model's is {own.dtype}"[:DETAIL])
    if tensor.shape != own.shape:
        raise Fault("shape", f"{name!r} is {tuple(tensor.shape)}, the model's is {tuple(own.shape)}"[:DETAIL])
    fitted = tensor.to(own.dtype)
    if not fitted.isfinite().all():
        raise Fault(NOT_FINITE, describe_broken(name)[:DETAIL])
    if not fitted.is_floating_point() and ((fitted.double() - own.double()).abs() > LEAP).any():
        raise Fault("range", f"the counter {name!r} leaps by more than {LEAP}"[:DETAIL])
    if name.endswith(VARIANCE) and (fitted < 0).any():
        raise Fault("range", f"{name!r} holds negative numbers"[:DETAIL])
    return fitted


def fits(sent: torch.dtype, own: torch.dtype) -> bool:
    """Whether a tensor may be of another type: wider or narrower, or whole numbers where the model has others."""
    return sent == own or (sent != torch.bool and torch.can_cast(sent, own))
