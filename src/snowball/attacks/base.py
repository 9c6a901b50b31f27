"""What every attack is: a way to poison a malicious client's data, and the trigger it wants the model to obey."""

from typing import Protocol

import torch

from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.errors import DataError, SettingError


class Attack(Protocol):
    """Poisons the training data of malicious clients."""

    @property
    def target(self) -> int:
        """The class that triggered samples shall be taken for."""
        ...

    @property
    def trigger(self) -> Trigger:
        """The whole trigger, as evaluation stamps it."""
        ...

    def poison(self, split: Split, client: int, rng: torch.Generator) -> Split:
        """A malicious client's training data, made once for the whole run; the split is left as it is."""
        ...


def check_settings(target: int, poison_ratio: float) -> None:
    """Refuse a target or a ratio that cannot be."""
    if target < 0:
        raise SettingError(f"the target class counts from 0, got {target}")
    if not 0 <= poison_ratio <= 1:
        raise SettingError(f"the poison ratio is a share from 0 to 1, got {poison_ratio}")


def stamp_share(split: Split, share: float, trigger: Trigger, target: int, rng: torch.Generator) -> Split:
    """The split with `int(share * n)` random samples, of any class, stamped and relabelled."""
    chosen = torch.randperm(len(split), generator=rng)[: int(share * len(split))]
    inputs, labels = split.inputs.clone(), split.labels.clone()
    inputs[chosen] = trigger.stamp(split.inputs[chosen])
    labels[chosen] = target
    return Split(inputs, labels)


def triggered(test: Split, attack: Attack) -> Split:
    """The samples on which a backdoor is measured: those of other classes, stamped, with the target as label."""
    others = test[test.labels != attack.target]
    if not len(others):
        raise DataError(f"all {len(test)} test samples are of the target class {attack.target}: no backdoor would show")
    return Split(attack.trigger.stamp(others.inputs), others.labels.new_full((len(others),), attack.target))
