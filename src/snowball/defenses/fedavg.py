"""FedAvg: average all updates.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
"""

from dataclasses import dataclass
from typing import ClassVar

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_by_examples, elect_everyone
from snowball.updates import Updates


@dataclass(frozen=True)
class FedAvg:
    """Average all updates, weighted by examples: no defense at all."""

    fresh_deltas: ClassVar[bool] = True

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect every update."""
        elected = elect_everyone(updates)
        return Verdict(average_by_examples(updates, elected), elected)
