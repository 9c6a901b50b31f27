"""Pre-aggregation: a mixing replaces the clients' updates by other rows before a defense judges them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import torch
from torch import Tensor

from snowball.arrays import allocate_rows
from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import count_rows
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True, eq=False)
class Mixed:
    """The rows that a defense judges in place of the clients' own.

    Attributes:
        updates: the m mixed rows.
        members: (m, n) bool, the clients that each mixed row is made from.
        owners: (n,) the mixed row that stands for each client.
    """

    updates: Updates
    members: Tensor
    owners: Tensor

    def apply(self, mixing: "Mixing", context: Context) -> "Mixed":
        """Mix the rows once more."""
        again = mixing(self.updates, context)
        members = again.members.double() @ self.members.double() > 0
        return Mixed(again.updates, members, again.owners[self.owners])

    def judge_clients(self, verdict: Verdict) -> Verdict:
        """Return a verdict on the mixed rows as one on the clients.

        A client is elected if its update is part of an elected row. Evidence about a client is that about the row that
        stands for it. It is suspect if that row is, and its update is part of no elected row.
        """
        parts = self.members[verdict.elected].sum(0)  # (n,) elected rows that a client's update is part of
        suspects = None if verdict.suspects is None else verdict.suspects[self.owners] & (parts == 0)
        facts = {name: self._assign_fact(name, fact) for name, fact in verdict.facts.items()}
        return replace(verdict, elected=parts > 0, facts={**facts, "parts": parts.double()}, suspects=suspects)

    def _assign_fact(self, name: str, fact: Tensor | float | str) -> Tensor | float | str:
        """Return a fact with one value per client if it has one per mixed row; shares are divided among the members."""
        if not isinstance(fact, Tensor) or fact.shape != (len(self.updates),):
            return fact
        if name == "shares":
            return fact.double() @ (self.members / self.members.sum(1, keepdim=True)).double()
        return fact[self.owners]


class Mixing(Protocol):
    """Replaces the updates of a round by other rows."""

    def count_updates(self, rows: int) -> int:
        """Return how many updates make this many rows, at least."""
        ...

    def __call__(self, updates: Updates, context: Context) -> Mixed:
        """Mix one round's rows without modifying the updates."""
        ...


def leave_unmixed(updates: Updates) -> Mixed:
    """Return the updates as they are: every client stands for itself."""
    return Mixed(updates, torch.eye(len(updates), dtype=torch.bool), torch.arange(len(updates)))


def mix_rows(updates: Updates, count: int, mix: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `count` mixed rows, from a function of some columns of all rows at a time in float64."""
    values = allocate_rows((count, updates.layout.width), updates.dtype)
    for columns, block in updates.read_blocks(slice(0, updates.layout.width)):
        values[:, columns] = mix(block)
    return values.to(updates.dtype)


def average_members(updates: Updates, members: Tensor, clients: Sequence[str]) -> Updates:
    """Return the unweighted means of the (m, n) members; each has its members' mean number of examples."""
    sums, counts = members.double(), members.sum(1, keepdim=True)
    values = mix_rows(updates, len(members), lambda block: sums @ block / counts)
    examples = sums / counts @ updates.examples.double()  # divided first, or huge counts could overflow
    return Updates(values, examples, clients, updates.layout, max_share=updates.max_share, finite=True)


def count_minority(setting: int | float, rows: int) -> int:
    """Return how many malicious rows a setting means; fewer than half of them.

    A share is rounded up and limited to what the rows allow; a number that they do not allow is refused.
    """
    if isinstance(setting, float):
        return min(count_rows(setting, rows, ceil), (rows - 1) // 2)
    if rows <= 2 * setting:
        raise SettingError(f"tolerating {setting} needs over {2 * setting} updates, got {rows}")
    return setting
