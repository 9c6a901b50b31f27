"""Bucketing: replace the updates by the means of small groups, drawn at random, before a defense judges.

Karimireddy, He, Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022. The mean of s
updates differs less from the other means than updates differ from each other, so a defense mistakes fewer honest
clients for malicious ones. In return each malicious update spoils a whole bucket.

Deviations: none in the rule. A bucket has a name that never returns, since the next round has other buckets.
"""

from dataclasses import dataclass

import torch

from snowball.defenses.base import Context
from snowball.defenses.mixing import Mixed, average_members
from snowball.errors import SettingError
from snowball.sources import number_clients
from snowball.updates import Updates


@dataclass(frozen=True)
class Bucketing:
    """Replace the updates by the means of buckets, drawn again in every round.

    Attributes:
        size: updates per bucket; the last bucket may have fewer (the paper's s).
    """

    size: int = 2

    def __post_init__(self) -> None:
        """Refuse a bucket without updates."""
        if self.size < 1:
            raise SettingError(f"size must be 1 or more updates, got {self.size}")

    def count_updates(self, rows: int) -> int:
        """Return how many updates make this many buckets, at least."""
        return (rows - 1) * self.size + 1

    def __call__(self, updates: Updates, context: Context) -> Mixed:
        """Draw the buckets and average each."""
        rows = len(updates)
        order = torch.randperm(rows, generator=context.stream("buckets"))
        buckets = torch.empty(rows, dtype=torch.int64)
        buckets[order] = torch.arange(rows) // self.size  # (n,) the bucket of each row
        count = int(buckets.max()) + 1
        members = buckets == torch.arange(count)[:, None]
        names = [f"round {context.round} bucket {number}" for number in number_clients(count)]
        return Mixed(average_members(updates, members, names), members, buckets)
