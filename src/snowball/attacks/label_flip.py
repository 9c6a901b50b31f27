"""Label flipping: wrong labels, and nothing else.

Tolpegin, Truex, Gursoy, Liu: Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020.

Malicious clients relabel one class as another, or reverse the order of all classes. There is no trigger: success is
measured on the test samples whose label would be flipped.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackSetup, Knowledge
from snowball.attacks.poisoning import check_share
from snowball.data import Split
from snowball.errors import SettingError


@dataclass(frozen=True)
class LabelFlip:
    """Every malicious client relabels one class as another, or all classes y as C - 1 - y.

    Attributes:
        source: the class that is relabelled; None for all classes y, which become C - 1 - y.
        target: the label that it gets.
        poison_ratio: share of the affected samples that are relabelled.
    """

    knowledge: ClassVar[Knowledge] = "own"
    trigger: ClassVar[None] = None
    source: int | None = None
    target: int | None = None
    poison_ratio: float = 1.0

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        if (self.source is None) != (self.target is None):
            raise SettingError(f"source {self.source} and target {self.target} must be given together or not at all")
        if self.source is not None and self.source == self.target:
            raise SettingError(f"source and target must differ, got {self.source} for both")
        check_share("poison_ratio", self.poison_ratio)

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Return the split with flipped labels."""
        flipped = self._flip(split.labels, setup)
        affected = (flipped != split.labels).nonzero()[:, 0]
        order = affected[torch.randperm(len(affected), generator=rng)]
        chosen = order[: int(self.poison_ratio * len(affected))]
        labels = split.labels.clone()
        labels[chosen] = flipped[chosen]
        return Split(split.inputs, labels)

    def probe(self, setup: AttackSetup) -> Split:
        """Return the affected test samples with their flipped labels."""
        test = setup.dataset.test
        flipped = self._flip(test.labels, setup)
        affected = flipped != test.labels
        return Split(test.inputs[affected], flipped[affected])

    def _flip(self, labels: Tensor, setup: AttackSetup) -> Tensor:
        if self.source is None:
            return setup.dataset.classes - 1 - labels
        return torch.where(labels == self.source, torch.full_like(labels, self.target or 0), labels)
