"""A round's replies beside each other: who may be judged, and who sends too much of something."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low

import torch
from torch import Tensor

from snowball.guard.reply import DETAIL, Fault, Reply, Sane, examples_of, tensors_of, words_of
from snowball.server import Dropped

NORM, LONGEST = 1000.0, 1e15
"""An update this many times as long as a usual one, or as long as this, is absurd; elections are exact far below it."""

CROWD = 10.0
"""Where no bound is set, a client may claim so many times the examples that a usual one of the round claims; and it may
move what is not judged so many times as far."""

ROUNDING = 2**-7
"""Half precision may change a tensor by this share of its length."""


def sanitise(
    replies: Iterable[Reply],
    model: Mapping[str, Tensor],
    asked: Sequence[str] | None = None,
    max_examples: float | None = None,
    unjudged: Iterable[str] = (),
) -> tuple[list[Sane], list[Dropped]]:
    """The replies that can be judged, and the others with what is wrong with each.

    `unjudged` are the floating tensors that no defense will look at.
    """
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
    sane = without(sane, far)
    astray = {fault.client: fault for name in unjudged for fault in strayed(sane, name, model[name])}.values()
    return without(sane, astray), [*dropped, *crowd, *far, *astray]


def without(sane: Sequence[Sane], dropped: Iterable[Dropped]) -> list[Sane]:
    """The replies that are left."""
    out = {fault.client for fault in dropped}
    return [reply for reply in sane if reply.client not in out]


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
    bound = min(LONGEST, max(NORM * median_low(lengths), length_of(model), 1.0))
    return [
        Dropped(reply.client, "norm", f"its update is {length:.3g} long, above {bound:.3g}")
        for reply, length in zip(sane, lengths, strict=True)
        if length > bound
    ]


def strayed(sane: Sequence[Sane], name: str, own: Tensor) -> list[Dropped]:
    """Those who move a tensor that is averaged and not judged beyond what the round's others explain."""
    if not sane:
        return []
    lengths = [length_of({name: reply.tensors[name]}, {name: own}) for reply in sane]
    usual, size = median_low(lengths), length_of({name: own})
    bound = max(CROWD * usual, size) if usual else ROUNDING * size  # what most leave alone, all shall leave alone
    return [
        Dropped(reply.client, "range", f"it moves {name!r} by {length:.3g}, above {bound:.3g}"[:DETAIL])
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
