"""One client's reply and its validation. Only the sender's id is trusted: the server knows it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.arrays import convert_to_tensor, is_finite
from snowball.errors import UpdateError
from snowball.guard.norms import sum_squared_changes
from snowball.server import NOT_FINITE, describe_broken

MAX_EXAMPLES = 1 << 53
"""Largest example count that a float holds exactly."""

MAX_COUNTER_STEP = 1 << 31
"""Largest change of a counter in one round."""

MAX_DETAIL_CHARS = 200
"""Longest detail of a dropped reply: the client chooses the names in it."""

VARIANCE_SUFFIX = "running_var"
"""Ends the names of variances; a negative one would make every prediction of the model NaN."""


@dataclass(frozen=True, eq=False)
class Reply:
    """One client's answer in a round.

    Attributes:
        client: the sender's id, as the server knows it.
        examples: the number of training examples that the client claims.
        tensors: the client's model, by name.
    """

    client: str
    examples: Any
    tensors: Any


@dataclass(frozen=True, eq=False)
class ValidReply:
    """A reply that can be judged: its tensors have the model's names, shapes and types, and are finite.

    Attributes:
        norm: the length of the change of all floating-point tensors, as `measure_norm` measures it.
    """

    client: str
    examples: float
    tensors: dict[str, Tensor]
    norm: float


class InvalidReply(Exception):  # noqa: N818
    """Raised for a reply that is dropped; its arguments are a reason and a detail."""


def describe_error(error: Exception) -> str:
    """Return an exception's type and text, or the type alone if the text raises an error itself."""
    try:
        return f"{type(error).__name__}: {error}"[:MAX_DETAIL_CHARS]
    except Exception:
        return type(error).__name__


def read_examples(count: Any) -> float:
    """Return the example count that a client claims; refuse one that is not a possible number."""
    if isinstance(count, Tensor | np.ndarray | np.generic) and math.prod(count.shape) == 1:
        count = count.item()
    if isinstance(count, bool) or not isinstance(count, int | float):
        raise InvalidReply("examples", f"its example count is {type(count).__name__}, expected a number")
    try:
        claimed = float(count)
    except OverflowError:
        claimed = math.inf
    if not 0 < claimed <= MAX_EXAMPLES:  # also refuses NaN
        raise InvalidReply("examples", f"it claims {claimed:.6g} examples")
    return claimed


def read_reply(client: str, reply: Reply, model: Mapping[str, Tensor]) -> ValidReply:
    """Return a client's reply with the model's order and types of tensors; refuse one that does not fit the model."""
    examples = read_examples(reply.examples)
    check_names(reply.tensors, model)
    tensors, squares = {}, 0.0
    for name, own in model.items():
        tensors[name] = read_tensor(name, reply.tensors[name], own)
        squares += check_numbers(name, tensors[name], own)
    return ValidReply(client, examples, tensors, math.sqrt(squares))


def check_names(tensors: Any, model: Mapping[str, Tensor]) -> None:
    """Refuse anything but a mapping with the model's names."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InvalidReply("names", f"its tensors are {kind}, expected a mapping of names to tensors")
    if set(tensors) != set(model):
        missing, extra = sorted(set(model) - set(tensors)), sorted(map(str, set(tensors) - set(model)))
        raise InvalidReply("names", f"missing {missing[:5]}, unexpected {extra[:5]}"[:MAX_DETAIL_CHARS])


def read_tensor(name: str, value: Any, own: Tensor) -> Tensor:
    """Return one tensor of a reply in the type of the model's `own`; refuse another shape, and types that differ."""
    try:
        tensor = convert_to_tensor(value, repr(name)).cpu()
    except (UpdateError, RuntimeError) as error:  # a meta tensor has no numbers
        raise InvalidReply("dtype", " ".join(str(error).split())[:MAX_DETAIL_CHARS]) from error
    if not is_convertible(tensor.dtype, own.dtype):
        raise InvalidReply("dtype", f"{name!r} is {tensor.dtype}, the model's is {own.dtype}"[:MAX_DETAIL_CHARS])
    if tensor.shape != own.shape:
        shapes = f"{name!r} is {tuple(tensor.shape)}, the model's is {tuple(own.shape)}"
        raise InvalidReply("shape", shapes[:MAX_DETAIL_CHARS])
    return tensor.to(own.dtype)


def check_numbers(name: str, tensor: Tensor, own: Tensor) -> float:
    """Return the squared length of a tensor's change; refuse numbers that cannot be averaged."""
    if not tensor.is_floating_point():
        if ((tensor.double() - own.double()).abs() > MAX_COUNTER_STEP).any():
            detail = f"the counter {name!r} jumps by more than {MAX_COUNTER_STEP}"
            raise InvalidReply("range", detail[:MAX_DETAIL_CHARS])
        return 0.0
    squares = sum_squared_changes(tensor, own)
    if not math.isfinite(squares) and not is_finite(tensor):
        raise InvalidReply(NOT_FINITE, describe_broken(name)[:MAX_DETAIL_CHARS])
    if name.endswith(VARIANCE_SUFFIX) and (tensor < 0).any():
        raise InvalidReply("range", f"{name!r} holds negative numbers"[:MAX_DETAIL_CHARS])
    return squares


def is_convertible(sent: torch.dtype, own: torch.dtype) -> bool:
    """Whether one type may replace another: a wider or narrower one, or integers for floating-point numbers."""
    return sent == own or (sent != torch.bool and torch.can_cast(sent, own))
