"""Edge cases: rare samples as a backdoor.

Wang et al.: Attack of the Tails: Yes, You Really Can Backdoor Federated Learning, NeurIPS 2020.

Malicious clients label samples from the tail of a class, which honest clients hardly have, as the target. No trigger is
stamped: whoever looks like the tail is taken for the target.

Deviations: the original brings rare samples from elsewhere (aircraft of one airline, foreign digits); here they are
those of the data set itself that lie farthest from the mean of their class.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import Plot, View, check_share
from snowball.data import Split
from snowball.errors import DataError, SettingError


@dataclass(frozen=True)
class EdgeCase:
    """Every malicious client labels rare samples of one class as the target.

    Attributes:
        source: the class whose rare samples are relabelled.
        target: what they are called.
        rare: share of the class that counts as rare.
        poison_ratio: share of a malicious client's samples that are replaced by rare ones.
    """

    view: ClassVar[View] = "own"
    trigger: ClassVar[None] = None
    source: int = 7
    target: int = 1
    rare: float = 0.1
    poison_ratio: float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        if min(self.source, self.target) < 0 or self.source == self.target:
            raise SettingError(f"source and target are two classes from 0, got {self.source} and {self.target}")
        check_share("poison_ratio", self.poison_ratio)
        check_share("rare", self.rare)

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples replaced by rare ones of the source class, labelled as the target."""
        tail = self._tail(plot.dataset.train, plot)
        replaced = torch.randperm(len(split), generator=rng)[: int(self.poison_ratio * len(split))]
        inputs, labels = split.inputs.clone(), split.labels.clone()
        inputs[replaced] = tail[torch.randint(len(tail), (len(replaced),), generator=rng)]
        labels[replaced] = self.target
        return Split(inputs, labels)

    def probe(self, plot: Plot) -> Split:
        """The rare test samples of the source class, with the target as label."""
        tail = self._tail(plot.dataset.test, plot)
        return Split(tail, torch.full((len(tail),), self.target))

    def _tail(self, split: Split, plot: Plot) -> Tensor:
        """The source class's samples that lie farthest from the mean of that class's training samples."""
        known = plot.dataset.train
        members = split.inputs[split.labels == self.source]
        if not len(members) or not (known.labels == self.source).any():
            raise DataError(f"{plot.dataset.name} has no samples of class {self.source} to take rare ones of")
        centre = plot.dataset.scale(known.inputs[known.labels == self.source]).mean(0)
        distance = (plot.dataset.scale(members) - centre).flatten(1).norm(dim=1)
        count = max(1, round(self.rare * len(members)))
        return members[distance.argsort(descending=True, stable=True)[:count]]
