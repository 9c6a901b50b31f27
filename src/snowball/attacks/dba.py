"""Distributed backdoor attack.

Xie, Huang, Chen, Li: DBA: Distributed Backdoor Attacks against Federated Learning, ICLR 2020.

The trigger is cut in parts; each malicious client plants one, and the model learns to obey the whole unseen.

As in the Snowball paper's experiments, a 3x3 square is cut in three where the original has four bars, updates are not
scaled, and the learning rate is everybody's. A client's part is drawn from its own stream, once for the whole run.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from snowball.attacks.base import check_settings, stamp_share
from snowball.data import Split
from snowball.data.triggers import WHITE_SQUARE, WHITE_SQUARE_PARTS, Trigger


@dataclass(frozen=True)
class Dba:
    """Every malicious client plants one part of the trigger.

    Attributes:
        target: the class that triggered samples shall be taken for.
        poison_ratio: share of a malicious client's samples that carry its part (the paper's PDR).
    """

    target: int = 1
    poison_ratio: float = 0.3
    trigger: ClassVar[Trigger] = WHITE_SQUARE
    parts: ClassVar[tuple[Trigger, ...]] = WHITE_SQUARE_PARTS

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        check_settings(self.target, self.poison_ratio)

    def poison(self, split: Split, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples stamped with this client's part and relabelled."""
        part = self.parts[int(torch.randint(len(self.parts), (), generator=rng))]
        return stamp_share(split, self.poison_ratio, part, self.target, rng)
