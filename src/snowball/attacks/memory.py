"""The protocols of attacks that keep a memory from round to round, such as a trigger that they learn.

A memory is nested dicts and lists of tensors, numbers and strings. All attackers share it, so they are colluders. The
run saves it in its checkpoints, and hands it to everything that the attack does: in the `AttackSetup` of `poison` and
`probe`, in the `LocalSession` of `train` and in the `AttackerView` of `craft`. It is None until the attack returns one.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from snowball.attacks.base import Attack, AttackerView, AttackSetup, Memory
from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.layout import Layout


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptationView:
    """What the attackers of a round see together before anybody trains.

    Attributes:
        setup: the data set, the memory and the trigger as they are so far.
        model: the global model in evaluation mode, to be used or changed; it takes samples that
            `setup.dataset.scale` has scaled, and standardises them itself.
        base: (d,) the global model.
        layout: the columns of a row.
        round: the current round, counted from 1.
        clients: the attackers of this round.
        samples: the clean samples of each of them.
        device: the device of the model.
    """

    setup: AttackSetup
    model: nn.Module
    base: Tensor
    layout: Layout
    round: int
    clients: tuple[int, ...]
    samples: tuple[Split, ...]
    device: str = "cpu"

    def pool_samples(self) -> Split:
        """Return the clean samples of all attackers together."""
        inputs, labels = ([getattr(split, name) for split in self.samples] for name in ("inputs", "labels"))
        return Split(torch.cat(inputs), torch.cat(labels))


@runtime_checkable
class AdaptingAttack(Protocol):
    """An attack that renews its memory before the clients of a round train."""

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        """Return the memory of this round; called once for all attackers, in rounds with at least one."""
        ...


@runtime_checkable
class RememberingAttack(Protocol):
    """A `CraftingAttack` that renews its memory with what it sent."""

    def remember(self, view: AttackerView, sent: Tensor) -> Memory:
        """Return the memory for later rounds; `sent` (m, d) are the updates that `craft` returned for the view."""
        ...


@runtime_checkable
class TriggerLearningAttack(Protocol):
    """An attack whose trigger is in its memory."""

    def make_trigger(self, setup: AttackSetup) -> Trigger:
        """Return the trigger in the setup's memory, or the one to start from if there is no memory yet.

        It takes the place of `setup.trigger`, which is the one that the attack names. A memory that does not fit the
        data set is a RunError.
        """
        ...


@runtime_checkable
class StatefulAttack(Protocol):
    """An attack that checks its own memory when a run continues from it."""

    def check_memory(self, memory: Memory, setup: AttackSetup, layout: Layout) -> None:
        """Raise a RunError for a memory that no round of a federation with this model can have left."""
        ...


def keeps_memory(attack: Attack | None) -> bool:
    """Return whether an attack keeps a memory from round to round."""
    return isinstance(attack, AdaptingAttack | RememberingAttack)


def recall_setup(attack: Attack, setup: AttackSetup, memory: Memory | None) -> AttackSetup:
    """Return the setup with a memory, and with the trigger in that memory if the attack learns it."""
    recalled = replace(setup, memory=memory)
    if not isinstance(attack, TriggerLearningAttack):
        return recalled
    return replace(recalled, optional_trigger=attack.make_trigger(recalled))
