"""Centralised backdoor attack.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020.

Every malicious client stamps the whole trigger on a share of its samples and labels them as the target class.

As in the Snowball paper's experiments, updates are not scaled up and the learning rate is everybody's; the original
replaces the model by a scaled update. The samples are of any class, the target's own included, and are chosen once.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from snowball.attacks.base import check_settings, stamp_share
from snowball.data import Split
from snowball.data.triggers import WHITE_SQUARE, Trigger


@dataclass(frozen=True)
class Cba:
    """Every malicious client plants the whole trigger.

    Attributes:
        target: the class that triggered samples shall be taken for.
        poison_ratio: share of a malicious client's samples that carry the trigger (the paper's PDR).
    """

    target: int = 1
    poison_ratio: float = 0.3
    trigger: ClassVar[Trigger] = WHITE_SQUARE

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        check_settings(self.target, self.poison_ratio)

    def poison(self, split: Split, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples stamped with the trigger and relabelled."""
        return stamp_share(split, self.poison_ratio, self.trigger, self.target, rng)
