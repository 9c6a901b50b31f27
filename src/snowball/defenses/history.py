"""Rows that defenses with a memory keep by client from round to round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.defenses.base import Context, State
from snowball.errors import RunError, SettingError
from snowball.rng import derive
from snowball.updates import BLOCK_ELEMENTS, sum_products

Entry = Mapping[str, Any]
"""What is kept of a client; "round" is the one it was last seen in."""

Entries = Mapping[str, Entry]
"""What is kept, by client."""

MAX_REMEMBERED_CLIENTS = 512
"""Clients that are remembered unless another bound is set: just under a GiB of the paper's FEMNIST updates."""

MAX_SHOWN_CHARS = 60
"""Characters of a client's id that an error repeats."""


def keep_recent(entries: Entries, context: Context, forget_after: int | None, remember: int | None) -> dict[str, Entry]:
    """Return the entries to keep: the `remember` clients last seen, unless they missed too many rounds in a row.

    Among clients last seen in the same round a hash decides, whose key is the seed: nobody picks an id that stays.
    """
    kept = {
        client: entry
        for client, entry in entries.items()
        if forget_after is None or context.round - entry["round"] < forget_after
    }
    if remember is None or len(kept) <= remember:
        return kept

    def rank(client: str) -> tuple[int, int]:
        round: int = kept[client]["round"]
        return -round, derive(context.seed, "defense", "forget", round, client)

    latest = set(sorted(kept, key=rank)[:remember])
    return {client: entry for client, entry in kept.items() if client in latest}


def check_bounds(forget_after: int | None, remember: int | None) -> None:
    """Refuse to forget clients that missed nothing, and to remember nobody."""
    for name, bound, unit in (("forget_after", forget_after, "round"), ("remember", remember, "client")):
        if bound is not None and (type(bound) is not int or bound < 1):
            raise SettingError(f"{name} must be 1 {unit} or more, got {bound}")


def read_entries(state: State, row: str, width: int, round: int) -> Entries:
    """The clients of a state, unless no round up to this one can have left them; `row` names what is kept of each."""
    entries: Entries | None = state.get("clients")
    if not isinstance(entries, Mapping):
        raise describe_damage(f"its clients cannot be a {type(entries).__name__}")
    for client, entry in entries.items():
        shown = repr(client)[:MAX_SHOWN_CHARS]
        if not isinstance(entry, Mapping) or type(entry.get("round")) is not int or not 0 < entry["round"] <= round:
            raise describe_damage(f"it does not say in which of {round} rounds client {shown} was last seen")
        if not is_row(entry.get(row), width):
            raise describe_damage(f"its {row} of client {shown} is not {width} numbers")
    return entries


def is_row(value: Any, width: int) -> bool:
    """Whether a value is a row of so many floating-point numbers."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.shape == (width,)


def describe_damage(fault: str) -> RunError:
    """The error about a state that no round can have left."""
    return RunError(f"the defense's state is damaged or of another federation: {fault}; start again without it")


def count_mebibytes(state: Any) -> float:
    """The memory that a state's tensors take."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size() / 2**20
    if isinstance(state, Mapping):
        return count_mebibytes(list(state.values()))
    return sum(map(count_mebibytes, state)) if isinstance(state, list) else 0.0


def compute_inner_products(rows: Sequence[Tensor]) -> Tensor:
    """(n, n) inner products, in float64, of rows (d,) that are kept one by one."""
    width = max(1, BLOCK_ELEMENTS // len(rows))
    blocks = (
        torch.stack([row[start : start + width] for row in rows]).to(torch.float64)
        for start in range(0, len(rows[0]), width)
    )
    return sum_products(len(rows), blocks)
