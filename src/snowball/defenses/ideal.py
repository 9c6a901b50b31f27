"""Ideal: the defense that knows who is malicious; the benchmark for all others."""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_by_examples
from snowball.updates import Updates


@dataclass(frozen=True)
class Ideal:
    """Average the updates of benign clients; without any, the model stays as it is.

    Attributes:
        malicious: ids of the malicious clients, which only a simulator knows.
    """

    malicious: Collection[str] = frozenset()

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect the clients that are not malicious."""
        malicious = set(map(str, self.malicious))
        elected = torch.tensor([client not in malicious for client in updates.clients])
        return Verdict(average_by_examples(updates, elected), elected)
