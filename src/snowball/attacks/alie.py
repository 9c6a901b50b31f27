"""ALIE ("a little is enough"): changes that hide in the spread of honest updates.

Baruch, Baruch, Goldberg: A Little Is Enough: Circumventing Defenses For Distributed Learning, NeurIPS 2019.

In every coordinate, attackers stay within z standard deviations of the honest mean. z is the largest number for which
enough honest updates lie farther out to form a majority together with the attackers. With `goal = "backdoor"` the
backdoored updates are clamped to that range; with `goal = "damage"` all attackers send its lower end.

Deviations: mean and deviation are those of the round's honest updates; the paper estimates them from the colluders.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Literal

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, Knowledge
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_positive, select_honest_rows
from snowball.errors import SettingError


@dataclass(frozen=True)
class ALIE(CBA):
    """All malicious clients hide in the spread of honest updates, with a backdoor or to do damage.

    Attributes:
        goal: "backdoor", or "damage" to push every coordinate to one side.
        deviations: allowed standard deviations from the mean (z); None computes the largest that hides.
    """

    knowledge: ClassVar[Knowledge] = "all"
    goal: Literal["backdoor", "damage"] = "backdoor"
    deviations: float | None = None

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        if self.goal not in ("backdoor", "damage"):
            raise SettingError(f"goal {self.goal!r} is not one of backdoor, damage")
        if self.deviations is not None:
            check_positive("deviations", self.deviations)

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the attackers' updates clamped to the hidden range, or its lower end."""
        known = select_honest_rows(view)
        mean, deviation = known.mean(0), known.std(0, correction=0)
        limit = self.deviations or compute_hidden_deviations(view.cohort_size, view.attacker_count)
        if self.goal == "damage":
            return (mean - limit * deviation).expand_as(view.rows)
        return torch.maximum(torch.minimum(view.rows, mean + limit * deviation), mean - limit * deviation)


def compute_hidden_deviations(clients: int, attackers: int) -> float:
    """Return how many deviations from the mean hide the attackers (z); 0 if even the mean does not."""
    supporters = clients // 2 + 1 - attackers
    honest = clients - attackers
    share = (honest - supporters) / honest if honest else 0.5
    return max(0.0, NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6)))
