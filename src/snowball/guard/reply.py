"""One client's reply and its validation. Only the sender's id is trusted: the server knows it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.errors import UpdateError
from snowball.server import NOT_FINITE, describe_broken
from snowball.updates import convert_to_tensor

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
    """A reply that can be judged: its tensors have the model's names, shapes and types, and are finite."""

    client: str
    examples: float
    tensors: dict[str, Tensor]


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


def read_tensors(tensors: Any, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a reply's tensors in the model's order and types; refuse those that do not fit the model."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InvalidReply("names", f"its tensors are {kind}, expected a mapping of names to tensors")
    if set(tensors) != set(model):
        missing, extra = sorted(set(model) - set(tensors)), sorted(map(str, set(tensors) - set(model)))
        raise InvalidReply("names", f"missing {missing[:5]}, unexpected {extra[:5]}"[:MAX_DETAIL_CHARS])
    return {name: read_tensor(name, tensors[name], own) for name, own in model.items()}


def read_tensor(name: str, value: Any, own: Tensor) -> Tensor:
    """Return one tensor of a reply in the type of the model's `own`; refuse one that does not fit."""
    try:
        tensor = convert_to_tensor(value, repr(name)).cpu()
    except (UpdateError, RuntimeError) as error:  # a meta tensor has no numbers
        raise InvalidReply("dtype", " ".join(str(error).split())[:MAX_DETAIL_CHARS]) from error
    if not is_convertible(tensor.dtype, own.dtype):
        raise InvalidReply("dtype", f"{name!r} is {tensor.dtype}, the model's is {own.dtype}"[:MAX_DETAIL_CHARS])
    if tensor.shape != own.shape:
        shapes = f"{name!r} is {tuple(tensor.shape)}, the model's is {tuple(own.shape)}"
        raise InvalidReply("shape", shapes[:MAX_DETAIL_CHARS])
    converted = tensor.to(own.dtype)
    if not converted.isfinite().all():  # the bounds on norms need finite numbers
        raise InvalidReply(NOT_FINITE, describe_broken(name)[:MAX_DETAIL_CHARS])
    if not converted.is_floating_point() and ((converted.double() - own.double()).abs() > MAX_COUNTER_STEP).any():
        raise InvalidReply("range", f"the counter {name!r} jumps by more than {MAX_COUNTER_STEP}"[:MAX_DETAIL_CHARS])
    if name.endswith(VARIANCE_SUFFIX) and (converted < 0).any():
        raise InvalidReply("range", f"{name!r} holds negative numbers"[:MAX_DETAIL_CHARS])
    return converted


def is_convertible(sent: torch.dtype, own: torch.dtype) -> bool:
    """Whether one type may replace another: a wider or narrower one, or integers for floating-point numbers."""
    return sent == own or (sent != torch.bool and torch.can_cast(sent, own))
