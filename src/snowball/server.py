"""One round on a server, which turns the clients' replies into the new global model; simulator and guard both use it.

A client whose numbers are not finite is dropped, and the defense judges the others. If the defense refuses the round,
as Krum does when too few updates are left for its setting, or if the new model would not be finite, the global model
stays as it was, and the outcome says why. Only a round that leaves no client to judge is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snowball.arrays import allocate_rows, is_finite, refuse_broken
from snowball.buffers import Buffers
from snowball.defenses.base import Context, Defense, State, Verdict, require
from snowball.defenses.ops import elect_everyone
from snowball.differences import Differences
from snowball.errors import SettingError, UpdateError
from snowball.layout import Layout
from snowball.products import sum_squares
from snowball.records.audit import DroppedReply
from snowball.updates import Updates

NOT_FINITE = "not-finite"
"""The only reason to drop a client that a server finds in the numbers; a key of `snowball.records.audit.REASONS`."""


@dataclass(frozen=True)
class Dropped:
    """A reply that is not judged at all.

    Attributes:
        reason: a key of `snowball.records.audit.REASONS`.
        detail: the exact fault, in words.
    """

    client: str
    reason: str
    detail: str

    def plain(self) -> DroppedReply:
        """Return the entry for an audit."""
        return {"client": self.client, "reason": self.reason, "detail": self.detail}


@dataclass(frozen=True, eq=False, kw_only=True)
class Received:
    """The replies of a round; the shapes match the model, but the numbers may be anything.

    Attributes:
        values: (n, d) local minus global parameters, as a matrix or as differences; when clients are dropped from a
            matrix, the rows below move up in place.
        examples: (n,) number of training examples behind each row.
        clients: (n) stable ids.
        layout: the columns of a row.
        buffers: (n) the buffers of the clients' models.
        max_share: the largest share of an average that a client may have; 1 sets no limit.
    """

    values: Tensor | Differences
    examples: Tensor
    clients: tuple[str, ...]
    layout: Layout
    buffers: Sequence[Buffers]
    max_share: float = 1.0

    def to_updates(self, finite: bool = False) -> Updates:
        """Return the updates for a defense; refuse numbers that are not finite, unless they are known to be."""
        return Updates(
            self.values, self.examples, self.clients, self.layout, self.buffers, self.max_share, finite=finite
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """The result of a round.

    Attributes:
        updates: the updates that the defense judged.
        dropped: the clients that it did not judge, and why.
        elected: (n,) bool, the updates that went into the model.
        facts: the defense's evidence.
        base: the global row after the round.
        buffers: the global model's buffers after the round.
        state: the defense's state for the next round's context.
        kept: why the global model and the defense's state stay as they were; None if they do not.
    """

    updates: Updates
    dropped: tuple[Dropped, ...]
    elected: Tensor
    facts: Mapping[str, Tensor | float | str]
    base: Tensor
    buffers: Buffers
    state: State | None
    kept: str | None = None


def judge_round(
    received: Received, defense: Defense, context: Context, buffers: Buffers, overwrite: bool = False
) -> Outcome:
    """Drop clients whose numbers are not finite, let the defense judge the others, and apply its verdict.

    The global model is the one that differences are subtracted from, or the context's base, with `buffers`. With
    `overwrite`, the new row takes the memory of the defense's delta. Raises an UpdateError if no client is left to
    judge, or if the server's own update is not finite.
    """
    model = find_model(received, context)
    if context.trusted is not None and not is_finite(context.trusted):
        raise UpdateError("the server's own update holds NaN or infinite numbers")
    received, dropped = drop_broken(received)
    if dropped and not received.clients:
        raise UpdateError(f"nobody is left to judge: of client {dropped[0].client!r}, {dropped[0].detail}")
    updates = received.to_updates(finite=True)
    try:
        verdict = ask_defense(defense, updates, context)
        after = apply_verdict(verdict, updates, model, buffers, overwrite)
    except (SettingError, UpdateError) as error:  # a damaged state (RunError) ends the run
        return Outcome(
            updates=updates,
            dropped=dropped,
            elected=~elect_everyone(updates),
            facts={},
            base=require(context.base, "base", "a round"),
            buffers=buffers,
            state=context.state,
            kept=str(error),
        )
    return Outcome(
        updates=updates,
        dropped=dropped,
        elected=verdict.elected,
        facts=verdict.facts,
        base=after[0],
        buffers=after[1],
        state=verdict.state,
    )


def drop_broken(received: Received) -> tuple[Received, tuple[Dropped, ...]]:
    """Split off the clients whose numbers are not finite."""
    faults = find_faults(received)
    if not faults:
        return received, ()
    kept = [place for place in range(len(received.clients)) if place not in faults]
    sound = Received(
        values=select_rows(received.values, kept),
        examples=received.examples[kept],
        clients=tuple(received.clients[place] for place in kept),
        layout=received.layout,
        buffers=[received.buffers[place] for place in kept],
        max_share=received.max_share,
    )
    return sound, tuple(Dropped(received.clients[place], NOT_FINITE, fault) for place, fault in faults.items())


def select_rows(values: Tensor | Differences, rows: Sequence[int]) -> Tensor | Differences:
    """Return some rows, in ascending order; those of a matrix move up in place."""
    if isinstance(values, Differences):
        return values.select(rows)
    for place, source in enumerate(rows):  # a second matrix may not fit in memory
        values[place] = values[source]
    return values[: len(rows)]


def find_faults(received: Received) -> dict[int, str]:
    """Return the fault of each client with bad numbers, by its slot."""
    faults: dict[int, str] = {}
    values = received.values
    lengths = values.norms if isinstance(values, Differences) else sum_squares(values)
    for place, (sound, buffers) in enumerate(zip(lengths.isfinite().tolist(), received.buffers, strict=True)):
        row = {} if sound else received.layout.split(read_row(values, place))
        broken = next((name for name, tensor in {**row, **buffers}.items() if not is_finite(tensor)), None)
        if broken is not None:
            faults[place] = describe_broken(broken)
        elif not sound:
            faults[place] = "its length overflows"
    return faults


def read_row(values: Tensor | Differences, place: int) -> Tensor:
    """Return the (d,) row of a client."""
    return values.read_row(place) if isinstance(values, Differences) else values[place]


def describe_broken(name: str) -> str:
    """Describe the fault of a tensor that is not finite."""
    return f"{name!r} holds NaN or infinite numbers"


def ask_defense(defense: Defense, updates: Updates, context: Context) -> Verdict:
    """Ask a defense for its verdict; refuse one that cannot be applied."""
    verdict: Any = defense(updates, context)
    if not isinstance(verdict, Verdict):
        raise UpdateError(f"the defense returned {type(verdict).__name__}, a Verdict is needed")
    rows, width = len(updates), updates.layout.width
    if verdict.elected.shape != (rows,) or verdict.elected.dtype != torch.bool:
        raise UpdateError(f"the defense elects by {describe_tensor(verdict.elected)}, {rows} bools are needed")
    if verdict.delta.shape != (width,) or not verdict.delta.is_floating_point():
        raise UpdateError(f"the defense's average is {describe_tensor(verdict.delta)}, {width} numbers are needed")
    if not is_finite(verdict.delta):
        raise UpdateError("the defense's average holds NaN or infinite numbers")
    return verdict


def describe_tensor(tensor: Tensor) -> str:
    """Describe a tensor's type and shape."""
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def find_model(received: Received, context: Context) -> Mapping[str, Tensor]:
    """Return the tensors of the global model that a round's rows belong to."""
    if isinstance(received.values, Differences):
        return received.values.origin
    return received.layout.split(require(context.base, "base", "a round"))


def apply_verdict(
    verdict: Verdict, updates: Updates, model: Mapping[str, Tensor], buffers: Buffers, overwrite: bool
) -> tuple[Tensor, Buffers]:
    """Return the global row and buffers after a round; `overwrite` gives the row the memory of the verdict's delta."""
    layout, delta = updates.layout, verdict.delta
    dtype = torch.promote_types(updates.dtype, delta.dtype)
    fits = delta.dtype == dtype and delta.is_contiguous()
    row = delta if overwrite and fits else allocate_rows((layout.width,), dtype)
    layout.add_change(model, delta, row)
    statistics = updates.merge_buffers(verdict.elected, buffers)
    refuse_broken([row, *statistics.values()])
    return row, statistics
