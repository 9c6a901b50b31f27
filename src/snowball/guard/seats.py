"""Decides which valid replies have a seat in a round: copies count as one, and an update of no length has none.

An update near zero lies in the middle of all others, so an election prefers it although its client did no work; copies
vote for one another. `docs/decisions/free-riders.md` says why the guard decides this, and not a defense.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from snowball.guard.audit_log import hash_model
from snowball.guard.norms import measure_norm
from snowball.guard.reply import ValidReply
from snowball.guard.validation import Split, exclude_dropped, find_median
from snowball.server import Dropped

MIN_UPDATE_NORM_RATIO = 1e-4
"""Smallest norm of an update, as a share of the median of those that are not zero. Sites whose example counts differ a
hundredfold differ as much in their steps; rounding in float32 alone moves a model by far less."""

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
    """Return the clients whose judged tensors are equal, group by group; only those of equal length are read again."""
    by_length: dict[float, list[ValidReply]] = defaultdict(list)
    for reply in replies:
        by_length[lengths[reply.client]].append(reply)
    by_content: dict[str, list[str]] = defaultdict(list)
    for group in by_length.values():
        for reply in group if len(group) > 1 else ():
            by_content[hash_model({name: reply.tensors[name] for name in judged})].append(reply.client)
    return [clients for clients in by_content.values() if len(clients) > 1]
