"""Functions that attacks share: stamp samples, make probes, estimate honest updates, check settings."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, AttackSetup, Knowledge
from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.errors import DataError, SettingError


@dataclass(frozen=True)
class Untargeted:
    """An attack without a target class or trigger: it damages the model by what it sends."""

    knowledge: ClassVar[Knowledge] = "all"
    target: ClassVar[None] = None
    trigger: ClassVar[None] = None

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Return the split unchanged."""
        return split

    def probe(self, setup: AttackSetup) -> None:
        """Return nothing: no label is wanted."""


def stamp_share(split: Split, share: float, trigger: Trigger, target: int, rng: torch.Generator) -> Split:
    """Stamp and relabel `int(share * n)` random samples of any class."""
    chosen = torch.randperm(len(split), generator=rng)[: int(share * len(split))]
    return stamp_samples(split, chosen, trigger, target)


def stamp_samples(split: Split, chosen: Tensor, trigger: Trigger, target: int) -> Split:
    """Stamp and relabel the chosen samples."""
    inputs, labels = split.inputs.clone(), split.labels.clone()
    inputs[chosen] = trigger.stamp(split.inputs[chosen])
    labels[chosen] = target
    return Split(inputs, labels)


def make_probe(test: Split, trigger: Trigger, target: int) -> Split:
    """Return the samples that measure a backdoor: those of other classes, stamped, with the target as label."""
    others = test[test.labels != target]
    if not len(others):
        raise DataError(f"all {len(test)} test samples are of the target class {target}: no backdoor would show")
    return Split(trigger.stamp(others.inputs), others.labels.new_full((len(others),), target))


def select_honest_rows(view: AttackerView) -> Tensor:
    """Return the known updates nearest to honest ones, (b, d): the others', or the attackers' if there are none."""
    return view.rows if view.others is None or not len(view.others) else view.others


def check_share(name: str, share: float) -> None:
    """Reject a setting that is not between 0 and 1."""
    if not 0 <= share <= 1:
        raise SettingError(f"{name} must be a share from 0 to 1, got {share}")


def check_positive(name: str, value: float) -> None:
    """Reject a setting that is not a positive finite number."""
    if not 0 < value < float("inf"):
        raise SettingError(f"{name} must be a positive number, got {value}")


def check_not_negative(name: str, value: float) -> None:
    """Reject a setting that is not a finite number from 0."""
    if not 0 <= value < float("inf"):
        raise SettingError(f"{name} must be a finite number from 0, got {value}")


def check_count(name: str, value: int) -> None:
    """Reject a setting that is not a whole number from 1."""
    if value < 1:
        raise SettingError(f"{name} must be a whole number from 1, got {value}")
