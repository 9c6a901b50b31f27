"""Validates a round's replies: each by itself, then compared with the others."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low

from torch import Tensor

from snowball.guard.norms import measure_norm
from snowball.guard.reply import (
    MAX_DETAIL_CHARS,
    InvalidReply,
    Reply,
    ValidReply,
    describe_error,
    read_reply,
)
from snowball.server import Dropped

MAX_UPDATE_NORM = 1e15
"""Largest norm of an update; elections are exact far below it."""

MAX_UPDATE_NORM_RATIO = 1000.0
"""Largest norm of an update, as a multiple of the round's median."""

MAX_EXAMPLES_RATIO = 100.0
"""Largest example count if the operator sets no bound, as a multiple of the round's median. Below it, a share of the
average is limited by `max_share` instead: the sites of a consortium may differ a hundredfold."""

MAX_BUFFER_STEP_RATIO = 10.0
"""Largest change of a tensor that is averaged but not judged, as a multiple of the round's median."""

MAX_ROUNDING_RATIO = 2**-7
"""Largest change of a tensor that rounding to half precision explains, as a share of its norm."""

Split = tuple[list[ValidReply], list[Dropped]]
"""The replies that stay, and the others."""


def validate_replies(
    replies: Iterable[Reply],
    model: Mapping[str, Tensor],
    asked: Sequence[str] | None = None,
    max_examples: float | None = None,
    unjudged: Iterable[str] = (),
) -> Split:
    """Split replies into those that can be judged and the others, each with the reason.

    `unjudged` names the floating tensors that no defense will see.
    """
    valid, invalid = validate_each(replies, model, asked)
    valid.sort(key=lambda reply: reply.client)  # like updates: the audit must not depend on the order of arrival
    valid, excess = drop_excess_examples(valid, max_examples)
    valid, overlong = drop_overlong_updates(valid, model)
    valid, stray = drop_stray_buffers(valid, {name: model[name] for name in unjudged})
    return valid, [*invalid, *excess, *overlong, *stray]


def validate_each(replies: Iterable[Reply], model: Mapping[str, Tensor], asked: Sequence[str] | None) -> Split:
    """Split replies by whether each fits the model; a client's first reply counts, if the client was asked."""
    valid: list[ValidReply] = []
    dropped: list[Dropped] = []
    seen: set[str] = set()
    for reply in replies:
        client = str(reply.client)
        try:
            if asked is not None and client not in asked:
                raise InvalidReply("not-asked", "it was not asked in this round")
            if client in seen:
                raise InvalidReply("duplicate", "it had already answered")
            seen.add(client)
            valid.append(read_reply(client, reply, model))
        except InvalidReply as fault:
            dropped.append(Dropped(client, *fault.args))
        except Exception as error:  # a reply can be wrong in any way and must not end the run
            dropped.append(Dropped(client, "error", describe_error(error)))
    return valid, dropped


def drop_excess_examples(replies: Sequence[ValidReply], max_examples: float | None) -> Split:
    """Drop clients that claim more examples than the operator's bound, or than a multiple of the round's median."""
    counts = [reply.examples for reply in replies]
    bound, source = max_examples, "the bound"
    if bound is None:
        bound, source = MAX_EXAMPLES_RATIO * find_median(counts), f"{MAX_EXAMPLES_RATIO:g} times the round's median"
    excess = [
        Dropped(reply.client, "examples", f"it claims {reply.examples:.6g} examples, above {source}, {bound:.6g}")
        for reply in replies
        if reply.examples > bound
    ]
    return exclude_dropped(replies, excess), excess


def drop_overlong_updates(replies: Sequence[ValidReply], model: Mapping[str, Tensor]) -> Split:
    """Drop clients whose update is far too long, compared with the round's median and with the model itself."""
    usual = find_median([reply.norm for reply in replies])
    bound = min(MAX_UPDATE_NORM, max(MAX_UPDATE_NORM_RATIO * usual, measure_norm(model), 1.0))
    overlong = [
        Dropped(reply.client, "norm", f"its update is {reply.norm:.3g} long, above {bound:.3g}")
        for reply in replies
        if reply.norm > bound
    ]
    return exclude_dropped(replies, overlong), overlong


def drop_stray_buffers(replies: Sequence[ValidReply], buffers: Mapping[str, Tensor]) -> Split:
    """Drop clients that move a tensor much further than the others do, if it is averaged but not judged."""
    stray: dict[str, Dropped] = {}
    for name, own in buffers.items():
        moves = [measure_norm({name: reply.tensors[name]}, buffers) for reply in replies]
        usual, size = find_median(moves), measure_norm({name: own})
        # Nobody may move a tensor that most clients leave unchanged.
        bound = max(MAX_BUFFER_STEP_RATIO * usual, size) if usual else MAX_ROUNDING_RATIO * size
        for reply, move in zip(replies, moves, strict=True):
            if move > bound:
                detail = f"it moves {name!r} by {move:.3g}, above {bound:.3g}"
                stray[reply.client] = Dropped(reply.client, "range", detail[:MAX_DETAIL_CHARS])
    return exclude_dropped(replies, stray.values()), list(stray.values())


def exclude_dropped(replies: Iterable[ValidReply], dropped: Iterable[Dropped]) -> list[ValidReply]:
    """Return the replies that are not dropped."""
    excluded = {fault.client for fault in dropped}
    return [reply for reply in replies if reply.client not in excluded]


def find_median(values: Sequence[float]) -> float:
    """Return the lower median of some values, or zero if there are none."""
    return median_low(values) if values else 0.0
