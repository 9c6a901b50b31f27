"""Edge cases: rare samples as a backdoor.

Wang et al.: Attack of the Tails: Yes, You Really Can Backdoor Federated Learning, NeurIPS 2020.

Malicious clients label samples from the tail of a class, which honest clients rarely have, as the target. No trigger is
stamped: the model learns to predict the target for samples from the tail.

Deviations: the original takes rare samples from other sources (aircraft of one airline, foreign digits). Here they are
the samples of the data set itself that lie farthest from the mean of their class.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackSetup, Knowledge
from snowball.attacks.poisoning import check_share
from snowball.data import Split
from snowball.errors import DataError, SettingError


@dataclass(frozen=True)
class EdgeCase:
    """Every malicious client labels rare samples of one class as the target.

    Attributes:
        source: the class whose rare samples are relabelled.
        target: the label that they get.
        rare: share of the class that counts as rare.
        poison_ratio: share of a malicious client's samples that are replaced by rare ones.
    """

    knowledge: ClassVar[Knowledge] = "own"
    trigger: ClassVar[None] = None
    source: int = 7
    target: int = 1
    rare: float = 0.1
    poison_ratio: float = 0.3

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        if min(self.source, self.target) < 0 or self.source == self.target:
            raise SettingError(
                f"source and target must be two class numbers from 0, got {self.source} and {self.target}"
            )
        check_share("poison_ratio", self.poison_ratio)
        check_share("rare", self.rare)

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Replace a share of the samples by rare ones of the source class, labelled as the target."""
        tail = self._select_tail(setup.dataset.train, setup)
        replaced = torch.randperm(len(split), generator=rng)[: int(self.poison_ratio * len(split))]
        inputs, labels = split.inputs.clone(), split.labels.clone()
        inputs[replaced] = tail[torch.randint(len(tail), (len(replaced),), generator=rng)]
        labels[replaced] = self.target
        return Split(inputs, labels)

    def probe(self, setup: AttackSetup) -> Split:
        """Return the rare test samples of the source class, with the target as label."""
        tail = self._select_tail(setup.dataset.test, setup)
        return Split(tail, torch.full((len(tail),), self.target))

    def _select_tail(self, split: Split, setup: AttackSetup) -> Tensor:
        """Return the source class's samples that lie farthest from the mean of its training samples."""
        known = setup.dataset.train
        members = split.inputs[split.labels == self.source]
        if not len(members) or not (known.labels == self.source).any():
            raise DataError(f"{setup.dataset.name} has no samples of class {self.source}, so there are no rare ones")
        centre = setup.dataset.scale(known.inputs[known.labels == self.source]).mean(0)
        distance = (setup.dataset.scale(members) - centre).flatten(1).norm(dim=1)
        count = max(1, round(self.rare * len(members)))
        return members[distance.argsort(descending=True, stable=True)[:count]]
