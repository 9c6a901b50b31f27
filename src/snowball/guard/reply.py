"""What clients send, and what is wrong with it. Nothing in a reply is taken on trust but who sent it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snowball.errors import UpdateError
from snowball.updates import as_tensor

NORM, LONGEST = 1000.0, 1e15
"""An update this many times as long as a usual one, or as long as this, is absurd; elections are exact far below it."""

MOST_EXAMPLES = 1 << 53
"""More than this cannot be counted exactly."""

CROWD = 10.0
"""Where no bound is set, a client may claim so many times the examples that a usual one of the round claims."""

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


@dataclass(frozen=True)
class Dropped:
    """A reply that is not judged at all.

    Attributes:
        reason: a key of `snowball.guard.REASONS`.
        detail: what exactly, in words.
    """

    client: str
    reason: str
    detail: str


class Fault(Exception):  # noqa: N818
    """What is wrong with a reply: a reason and its detail."""


@dataclass(frozen=True, eq=False)
class Sane:
    """A reply that can be judged."""

    client: str
    examples: float
    tensors: dict[str, Tensor]


def sanitise(
    replies: Iterable[Reply], model: Mapping[str, Tensor], asked: Sequence[str] | None, max_examples: float | None
) -> tuple[list[Sane], list[Dropped]]:
    """The replies that can be judged, and the others with what is wrong with each."""
    sane: list[Sane] = []
    dropped: list[Dropped] = []
    seen: set[str] = set()
    for reply in replies:
        client = str(reply.client)
        try:
            if asked is not None and client not in asked:
                raise Fault("not-asked", "it was not asked in this round")
            if client in seen:
                raise Fault("duplicate", "it had answered already")
            seen.add(client)
            sane.append(Sane(client, examples_of(reply), tensors_of(reply, model)))
        except Fault as fault:
            dropped.append(Dropped(client, *fault.args))
        except Exception as error:  # an answer can be wrong in any way, and must not end the run
            dropped.append(Dropped(client, "error", words_of(error)))
    sane.sort(key=lambda reply: reply.client)  # no defense can tell who came first
    crowd = crowded(sane, max_examples)
    sane = without(sane, crowd)
    far = stretched(sane, model)
    return without(sane, far), [*dropped, *crowd, *far]


def words_of(error: Exception) -> str:
    """What an exception says, even one that cannot say it."""
    try:
        return f"{type(error).__name__}: {error}"[:DETAIL]
    except Exception:
        return type(error).__name__


def without(sane: Sequence[Sane], dropped: Iterable[Dropped]) -> list[Sane]:
    """The replies that are left."""
    out = {fault.client for fault in dropped}
    return [reply for reply in sane if reply.client not in out]


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
        raise Fault("not-finite", f"{name!r} holds NaN or infinite numbers"[:DETAIL])
    if not fitted.is_floating_point() and ((fitted.double() - own.double()).abs() > LEAP).any():
        raise Fault("range", f"the counter {name!r} leaps by more than {LEAP}"[:DETAIL])
    if name.endswith(VARIANCE) and (fitted < 0).any():
        raise Fault("range", f"{name!r} holds negative numbers"[:DETAIL])
    return fitted


def fits(sent: torch.dtype, own: torch.dtype) -> bool:
    """Whether a tensor may be of another type: wider or narrower, or whole numbers where the model has others."""
    return sent == own or (sent != torch.bool and torch.can_cast(sent, own))


def crowded(sane: Sequence[Sane], max_examples: float | None) -> list[Dropped]:
    """Those who claim more examples than the bound, or, where none is set, than a usual client of the round does."""
    if not sane:
        return []
    usual = median_low(reply.examples for reply in sane)
    bound = CROWD * usual if max_examples is None else max_examples
    said = f"{CROWD:g} times the round's median" if max_examples is None else "the bound"
    return [
        Dropped(reply.client, "examples", f"it claims {reply.examples:.6g} examples, above {said}, {bound:.6g}")
        for reply in sane
        if reply.examples > bound
    ]


def stretched(sane: Sequence[Sane], model: Mapping[str, Tensor]) -> list[Dropped]:
    """Those whose update is absurdly long beside a usual one and beside the model itself."""
    if not sane:
        return []
    lengths = [length_of(reply.tensors, model) for reply in sane]
    usual = sorted(lengths)[(len(lengths) - 1) // 2]
    bound = min(LONGEST, max(NORM * usual, length_of(model), 1.0))
    return [
        Dropped(reply.client, "norm", f"its update is {length:.3g} long, above {bound:.3g}")
        for reply, length in zip(sane, lengths, strict=True)
        if length > bound
    ]


def length_of(tensors: Mapping[str, Tensor], about: Mapping[str, Tensor] | None = None) -> float:
    """The length of a model's floating tensors, or of their difference to another's."""
    squares = 0.0
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            away = tensor.float() if about is None else tensor.float() - about[name].float()
            length = float(torch.linalg.vector_norm(away, dtype=torch.float64))
            squares += length * length
    return math.sqrt(squares)
