"""RLR: a robust learning rate, which is negative in coordinates where too few updates agree on a direction.

Ozdayi, Kantarcioglu, Gel, "Defending against Backdoors in Federated Learning with Robust Learning Rate", AAAI 2021.
The signs of the updates are summed in every coordinate; where the absolute sum is below a threshold, the server steps
against the mean instead of along it.

Deviations: none in the rule. The threshold may be a share of the updates; the clipping and the noise that the authors'
code can add are left out, as in the published code.
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
    """Average all updates, and reverse the step in coordinates where too few of them agree on the sign.

    Attributes:
        threshold: the absolute sum of signs that a coordinate needs for a step forward (the paper's theta); an int is a
            number of updates, where 0 always steps forward; a float is a share of them, at least one update.
    """

    threshold: int | float = 0.2

    def __post_init__(self) -> None:
        """Refuse a threshold that is neither a share nor a number."""
        check_count("threshold", self.threshold)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Average, then reverse the coordinates without agreement."""
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
    """Return the (w,) learning rate of each coordinate, 1 or -1, from its (w, n) values in the updates."""
    agreement = block.sign().sum(1, dtype=torch.float32).abs()  # whole numbers, which float32 holds exactly
    return torch.where(agreement >= threshold, 1.0, -1.0)
