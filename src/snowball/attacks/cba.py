"""Centralised backdoor attack.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov: How To Backdoor Federated Learning, AISTATS 2020.

Every malicious client stamps the whole trigger on a share of its samples and labels them as the target class.

As in the Snowball paper's experiments, updates are not scaled up and the learning rate is everybody's; scaling is
`model-replacement`. The samples are of any class, the target's own included, and are chosen once.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from snowball.attacks.base import Plot, View, check_share
from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.errors import DataError, SettingError


@dataclass(frozen=True)
class Cba:
    """Every malicious client plants the whole trigger.

    Attributes:
        target: the class that triggered samples shall be taken for.
        poison_ratio: share of a malicious client's samples that carry the trigger (the paper's PDR).
        trigger: the name of the trigger.
    """

    view: ClassVar[View] = "own"
    target: int = 1
    poison_ratio: float = 0.3
    trigger: str = "white-square"

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        if self.target < 0:
            raise SettingError(f"the target class counts from 0, got {self.target}")
        check_share("poison_ratio", self.poison_ratio)

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples stamped with the trigger and relabelled."""
        return stamp_share(split, self.poison_ratio, plot.mark, self.target, rng)

    def probe(self, plot: Plot) -> Split:
        """Test samples of other classes, stamped, with the target as label."""
        return triggered(plot.dataset.test, plot.mark, self.target)


def stamp_share(split: Split, share: float, trigger: Trigger, target: int, rng: torch.Generator) -> Split:
    """The split with `int(share * n)` random samples, of any class, stamped and relabelled."""
    chosen = torch.randperm(len(split), generator=rng)[: int(share * len(split))]
    return stamp(split, chosen, trigger, target)


def stamp(split: Split, chosen: torch.Tensor, trigger: Trigger, target: int) -> Split:
    """The split with the chosen samples stamped and relabelled."""
    inputs, labels = split.inputs.clone(), split.labels.clone()
    inputs[chosen] = trigger.stamp(split.inputs[chosen])
    labels[chosen] = target
    return Split(inputs, labels)


def triggered(test: Split, trigger: Trigger, target: int) -> Split:
    """The samples on which a backdoor is measured: those of other classes, stamped, with the target as label."""
    others = test[test.labels != target]
    if not len(others):
        raise DataError(f"all {len(test)} test samples are of the target class {target}: no backdoor would show")
    return Split(trigger.stamp(others.inputs), others.labels.new_full((len(others),), target))
