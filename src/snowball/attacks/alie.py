"""A little is enough: changes that hide in the spread of honest updates.

Baruch, Baruch, Goldberg: A Little Is Enough: Circumventing Defenses For Distributed Learning, NeurIPS 2019.

In every coordinate an update may be as many standard deviations from the mean as leave enough honest ones farther out
that they and the attackers are a majority. With `goal = "backdoor"` the backdoored updates are cut to that range; with
`goal = "damage"` all attackers send its lower end.

Deviations: mean and deviation are those of the round's honest updates; the paper estimates them from colluders'.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Literal

import torch
from torch import Tensor

from snowball.attacks.base import Scene, View, check_positive, honest
from snowball.attacks.cba import Cba
from snowball.errors import SettingError


@dataclass(frozen=True)
class Alie(Cba):
    """All malicious clients hide in the spread of honest updates, with a backdoor or to do damage.

    Attributes:
        goal: "backdoor", or "damage" to push every coordinate to one side.
        deviations: how many standard deviations from the mean (z); None for as many as hide.
    """

    view: ClassVar[View] = "all"
    goal: Literal["backdoor", "damage"] = "backdoor"
    deviations: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        if self.goal not in ("backdoor", "damage"):
            raise SettingError(f"goal {self.goal!r} is not one of backdoor, damage")
        if self.deviations is not None:
            check_positive("deviations", self.deviations)

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The attackers' updates, cut to what hides, or its lower end."""
        known = honest(scene)
        mean, deviation = known.mean(0), known.std(0, correction=0)
        reach = self.deviations or hidden_deviations(scene.cohort, scene.attackers)
        if self.goal == "damage":
            return (mean - reach * deviation).expand_as(scene.rows)
        return torch.maximum(torch.minimum(scene.rows, mean + reach * deviation), mean - reach * deviation)


def hidden_deviations(clients: int, attackers: int) -> float:
    """How many deviations from the mean hide so many attackers (z); 0 where even the mean is not hidden."""
    supporters = clients // 2 + 1 - attackers
    honest = clients - attackers
    share = (honest - supporters) / honest if honest else 0.5
    return max(0.0, NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6)))
