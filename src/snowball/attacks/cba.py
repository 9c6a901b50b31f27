"""Centralised backdoor attack.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020.

Every malicious client stamps the whole trigger on a share of its samples and labels them as the target class.

As in the Snowball paper's experiments, updates are not scaled up and attackers use the common learning rate; scaling
is `model-replacement`. The samples are of any class, the target included, and are chosen once.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from snowball.attacks.base import AttackSetup, Knowledge
from snowball.attacks.poisoning import check_share, make_probe, stamp_share
from snowball.data import Split
from snowball.errors import SettingError


@dataclass(frozen=True)
class CBA:
    """Every malicious client plants the whole trigger.

    Attributes:
        target: the class that the model shall predict for triggered samples.
        poison_ratio: share of a malicious client's samples that carry the trigger (the paper's PDR).
        trigger: the name of the trigger.
    """

    knowledge: ClassVar[Knowledge] = "own"
    target: int = 1
    poison_ratio: float = 0.3
    trigger: str = "white-square"

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        if self.target < 0:
            raise SettingError(f"target must be a class number from 0, got {self.target}")
        check_share("poison_ratio", self.poison_ratio)

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Stamp the trigger on a share of the samples and relabel them."""
        return stamp_share(split, self.poison_ratio, setup.trigger, self.target, rng)

    def probe(self, setup: AttackSetup) -> Split:
        """Return the test samples of other classes, stamped, with the target as label."""
        return make_probe(setup.dataset.test, setup.trigger, self.target)
