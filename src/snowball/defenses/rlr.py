"""RLR: a robust learning rate, turned around where too few updates agree on a direction.

Ozdayi, Kantarcioglu, Gel, "Defending against Backdoors in Federated Learning with Robust Learning Rate", AAAI 2021.
In every coordinate the signs of the updates are added up; where the sum is short of a threshold, the server steps
against the mean instead of along it.

Deviations: none in the rule. The threshold may be a share of the updates; the clipping and the noise that the authors'
code can add are left out, as they are in the published code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_by_examples, check_count, count_rows, elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class RLR:
    """Average all updates, and step backwards in the coordinates on whose sign too few of them agree.

    Attributes:
        threshold: how far the signs of a coordinate must add up for a step forward (the paper's theta); an int is a
            number of updates, 0 for always forward, a float is a share of them, at least one update.
    """

    threshold: int | float = 0.2

    def __post_init__(self) -> None:
        """Refuse what is no threshold."""
        check_count("threshold", self.threshold)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Average, then turn around what is not agreed upon."""
        threshold = self._votes_needed(len(updates))
        mean = average_by_examples(updates, elect_everyone(updates))
        delta = mean * updates.reduce_columns(lambda block: compute_rates(block, threshold))
        turned = float((delta != mean).double().mean())
        return Verdict(delta, elect_everyone(updates), {"threshold": threshold, "reversed": turned})

    def _votes_needed(self, rows: int) -> int:
        if isinstance(self.threshold, int) and self.threshold > rows:
            raise SettingError(f"a threshold of {self.threshold} reverses every coordinate of {rows} updates")
        count = count_rows(self.threshold, rows, round)
        return count if isinstance(self.threshold, int) else max(1, count)


def compute_rates(block: Tensor, threshold: int) -> Tensor:
    """(w,) the learning rate of each coordinate, 1 or -1, from (w, n) what the updates say of it."""
    agreement = block.sign().sum(1, dtype=torch.float32).abs()  # whole numbers, which float32 holds exactly
    return torch.where(agreement >= threshold, 1.0, -1.0)
