"""Ideal: the defense that is told who is malicious; the mark that others are measured against."""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_by_examples
from snowball.updates import Updates


@dataclass(frozen=True)
class Ideal:
    """Average the updates of benign clients; with none there, the model stays as it is.

    Attributes:
        malicious: ids of the malicious clients, known to a simulator alone.
    """

    malicious: Collection[str] = frozenset()

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect whoever is not known to be malicious."""
        malicious = set(map(str, self.malicious))
        elected = torch.tensor([client not in malicious for client in updates.clients])
        return Verdict(average_by_examples(updates, elected), elected)
