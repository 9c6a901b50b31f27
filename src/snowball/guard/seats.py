"""Decides which valid replies have a seat in a round: copies count as one, and an update of no length has none.

An update near zero lies in the middle of all others, so an election prefers it although its client did no work; copies
vote for one another. `docs/decisions/free-riders.md` says why the guard decides this, and not a defense.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from snowball.guard.audit_log import hash_model
from snowball.guard.norms import measure_norm
from snowball.guard.reply import ValidReply
from snowball.guard.validation import Split, exclude_dropped, find_median
from snowball.server import Dropped

MIN_UPDATE_NORM_RATIO = 1e-4
"""Smallest norm of an update, as a share of the median of those that are not zero. Sites whose example counts differ a
hundredfold differ as much in their steps; rounding in float32 alone moves a model by far less."""

SAMPLED_NUMBERS = 64
"""Numbers of a tensor that are compared before the whole tensor is, at least, if it has as many."""

Rank = Callable[[str], int]
"""Returns the lot of a client in this round; the lowest wins."""


def drop_seatless(
    replies: Sequence[ValidReply], model: Mapping[str, Tensor], judged: Sequence[str], rank: Rank
) -> Split:
    """Drop updates of no length, and all but one of those that are equal in the judged tensors."""
    lengths = {reply.client: measure_step(reply, model, judged) for reply in replies}
    moving, idle = drop_idle_updates(replies, lengths)
    single, copies = drop_copies(moving, lengths, judged, rank)
    return single, [*idle, *copies]


def measure_step(reply: ValidReply, model: Mapping[str, Tensor], judged: Sequence[str]) -> float:
    """Return the length of the change of the judged tensors; buffers may move without any training."""
    if all(name in judged or not tensor.is_floating_point() for name, tensor in reply.tensors.items()):
        return reply.norm
    return measure_norm({name: reply.tensors[name] for name in judged}, model)


def drop_idle_updates(replies: Sequence[ValidReply], lengths: Mapping[str, float]) -> Split:
    """Drop updates that are zero, or negligible beside the median of the others."""
    usual = find_median([length for length in lengths.values() if length > 0])
    bound = MIN_UPDATE_NORM_RATIO * usual
    idle = [
        Dropped(reply.client, "no-length", f"its update is {lengths[reply.client]:.3g} long, the median is {usual:.3g}")
        for reply in replies
        if lengths[reply.client] <= bound
    ]
    return exclude_dropped(replies, idle), idle


def drop_copies(
    replies: Sequence[ValidReply], lengths: Mapping[str, float], judged: Sequence[str], rank: Rank
) -> Split:
    """Drop all but one of equal updates, which the lots choose; if all of a round are equal, nobody has trained."""
    copies: list[Dropped] = []
    for group in group_copies(replies, lengths, judged):
        kept = min(group, key=rank)
        if len(group) == len(replies):
            copies += [Dropped(client, "copy", f"all {len(group)} updates of the round are equal") for client in group]
        else:
            words = f"its update equals that of {len(group) - 1} more, and counts as one with theirs"
            copies += [Dropped(client, "copy", words) for client in group if client != kept]
    return exclude_dropped(replies, copies), copies


def group_copies(replies: Sequence[ValidReply], lengths: Mapping[str, float], judged: Sequence[str]) -> list[list[str]]:
    """Return the clients whose judged tensors are equal, group by group.

    Only replies of equal length are looked at again, and only those whose sampled numbers are equal, too, are read.
    """
    groups = [list(replies)]
    for describe in (
        lambda reply: lengths[reply.client],
        lambda reply: tuple(sample_numbers(reply.tensors[name]) for name in judged),
        lambda reply: hash_model({name: reply.tensors[name] for name in judged}),
    ):
        groups = split_groups(groups, describe)
    return [[reply.client for reply in group] for group in groups]


def split_groups(
    groups: Iterable[Sequence[ValidReply]], describe: Callable[[ValidReply], Hashable]
) -> list[list[ValidReply]]:
    """Return the replies of each group that have the same description, without those that are alone with theirs."""
    split: list[list[ValidReply]] = []
    for group in groups:
        alike: dict[Hashable, list[ValidReply]] = defaultdict(list)
        for reply in group:
            alike[describe(reply)].append(reply)
        split += [replies for replies in alike.values() if len(replies) > 1]
    return split


def sample_numbers(tensor: Tensor) -> bytes:
    """Return some numbers of a tensor, evenly spaced."""
    flat = tensor.reshape(-1)
    sample = flat[:: max(1, len(flat) // SAMPLED_NUMBERS)].contiguous()
    return sample.view(torch.uint8).numpy().tobytes()
