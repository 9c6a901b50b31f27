"""What defenses with a memory share: rows that are kept by client from round to round."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.updates import BLOCK_ELEMENTS, sum_of_products

Entry = Mapping[str, Any]
"""What is kept of a client; "round" is the one it was last seen in."""

Entries = Mapping[str, Entry]
"""What is kept, by client."""


def recent(entries: Entries, round: int, forget_after: int | None) -> dict[str, Entry]:
    """What is kept after a round: all but the clients that missed `forget_after` rounds in a row."""
    return {
        client: entry
        for client, entry in entries.items()
        if forget_after is None or round - entry["round"] < forget_after
    }


def check_forgetting(forget_after: int | None) -> None:
    """Refuse to forget clients that missed nothing."""
    if forget_after is not None and forget_after < 1:
        raise SettingError(f"forget_after must be 1 round or more, got {forget_after}")


def mebibytes(state: Any) -> float:
    """The memory that a state's tensors take."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size() / 2**20
    if isinstance(state, Mapping):
        return mebibytes(list(state.values()))
    return sum(map(mebibytes, state)) if isinstance(state, list) else 0.0


def inner_products(rows: Sequence[Tensor]) -> Tensor:
    """(n, n) inner products, in float64, of rows (d,) that are kept one by one."""
    width = max(1, BLOCK_ELEMENTS // len(rows))
    blocks = (
        torch.stack([row[start : start + width] for row in rows]).to(torch.float64)
        for start in range(0, len(rows[0]), width)
    )
    return sum_of_products(len(rows), blocks)
