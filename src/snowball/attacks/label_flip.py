"""Label flipping: wrong labels, and nothing else.

Tolpegin, Truex, Gursoy, Liu: Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020.

Malicious clients call one class another, or turn the order of all classes round. There is no trigger: success is
measured on the test samples whose label would be turned.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import Plot, View, check_share
from snowball.data import Split
from snowball.errors import SettingError


@dataclass(frozen=True)
class LabelFlip:
    """Every malicious client calls one class another, or all classes by the number that is as far from the last.

    Attributes:
        source: the class that is renamed; None for all classes y, which become C - 1 - y.
        target: what it is called.
        poison_ratio: share of the samples concerned that are relabelled.
    """

    view: ClassVar[View] = "own"
    trigger: ClassVar[None] = None
    source: int | None = None
    target: int | None = None
    poison_ratio: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        if (self.source is None) != (self.target is None):
            raise SettingError(f"source {self.source} and target {self.target} are given together or not at all")
        if self.source is not None and self.source == self.target:
            raise SettingError(f"source and target are the same class, {self.source}")
        check_share("poison_ratio", self.poison_ratio)

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with wrong labels."""
        flipped = self._flip(split.labels, plot)
        concerned = (flipped != split.labels).nonzero()[:, 0]
        order = concerned[torch.randperm(len(concerned), generator=rng)]
        chosen = order[: int(self.poison_ratio * len(concerned))]
        labels = split.labels.clone()
        labels[chosen] = flipped[chosen]
        return Split(split.inputs, labels)

    def probe(self, plot: Plot) -> Split:
        """The test samples that are concerned, with their wrong labels."""
        test = plot.dataset.test
        flipped = self._flip(test.labels, plot)
        concerned = flipped != test.labels
        return Split(test.inputs[concerned], flipped[concerned])

    def _flip(self, labels: Tensor, plot: Plot) -> Tensor:
        if self.source is None:
            return plot.dataset.classes - 1 - labels
        return torch.where(labels == self.source, torch.full_like(labels, self.target or 0), labels)
