"""The protocols of attacks, and what the simulator hands to them.

Every attack poisons the data of malicious clients and can measure whether it worked. An attack may also train in its
own way (`TrainingAttack`), or change what its clients send (`CraftingAttack`). Its `knowledge` says what it may see.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from snowball.data import Dataset, Split
from snowball.data.triggers import TRIGGERS, Trigger, find_trigger
from snowball.errors import SettingError
from snowball.layout import Layout

MAX_CHECKED_SAMPLES = 200
"""Test samples on which to check that a trigger is visible. White on white paper is not."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A loss of a batch of its features (n, h), which enter the last layer, class scores (n, classes) and labels (n,)."""

Knowledge = Literal["own", "colluders", "all"]
"""Whose updates an attacker sees besides the global model: its own, those of all attackers, or everybody's."""

Memory = Mapping[str, Any]
"""The memory of the attackers from round to round: nested dicts and lists of tensors, numbers and strings."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackSetup:
    """The data set and the trigger that an attack works with.

    Attributes:
        dataset: the data set that the clients share. Attackers use its training samples as similar public data.
        optional_trigger: the trigger that the attack names, made for this data set, or the one that it has learned;
            None if it has none.
        memory: what an attack that keeps a memory returned last; None before that.
    """

    dataset: Dataset
    optional_trigger: Trigger | None = None
    memory: Memory | None = None

    @property
    def trigger(self) -> Trigger:
        """The trigger of an attack that has one."""
        if self.optional_trigger is None:
            raise SettingError("the attack stamps a trigger, but names none")
        return self.optional_trigger


def set_up_attack(attack: "Attack", dataset: Dataset) -> AttackSetup:
    """Prepare an attack for a data set, and reject classes and triggers that the data set cannot have."""
    for setting in ("target", "source"):
        number = getattr(attack, setting, None)
        if number is not None and number >= dataset.classes:
            raise SettingError(f"attack.{setting} = {number} is not one of the {dataset.classes} classes from 0")
    if attack.trigger is None:
        return AttackSetup(dataset=dataset)
    if (named := find_trigger(attack.trigger)) is None:
        raise SettingError(f"attack.trigger = {attack.trigger!r} is not known; there are {', '.join(TRIGGERS)}")
    trigger, samples = named.make(dataset), dataset.test.inputs[:MAX_CHECKED_SAMPLES]
    if len(samples) and torch.equal(trigger.stamp(samples), samples):
        raise SettingError(f"attack.trigger = {attack.trigger!r} cannot be seen on the samples of {dataset.name}")
    return AttackSetup(dataset=dataset, optional_trigger=trigger)


class Attack(Protocol):
    """Poisons the training data of malicious clients."""

    knowledge: ClassVar[Knowledge]

    @property
    def target(self) -> int | None:
        """The class that the model shall predict for the attacker's samples; None if the attacker wants no class."""
        ...

    @property
    def trigger(self) -> str | None:
        """The name of the trigger; None if there is none."""
        ...

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Return a malicious client's training data, the same for the same memory, and leave the split unchanged."""
        ...

    def probe(self, setup: AttackSetup) -> Split | None:
        """Return test samples with the labels that the attacker wants for them; None if it wants no labels.

        Their number does not depend on the memory.
        """
        ...


class LocalSession(Protocol):
    """A malicious client's training in one round.

    Rows have the trainer's order of columns; the layers of the layout have the model's order.
    """

    layout: Layout
    round: int
    client: int
    start: Tensor  # (d,) the global model
    memory: Memory | None  # of an attack that keeps one

    def train(
        self,
        before: Callable[[Tensor, Tensor], None] | None = None,
        after: Callable[[Tensor], None] | None = None,
        clean: bool = False,
        start: Tensor | None = None,
        loss: Loss | None = None,
        epochs: int | None = None,
    ) -> Tensor:
        """Train on poisoned or on clean samples, and return the local model, (d,).

        Before each step `before(weights, gradient)` may change the gradient in place. After it `after(weights)` may
        change the weights in place. Training starts at the global model, or at the weights `start` with the global
        model's buffers. The loss is the cross-entropy, or `loss(features, scores, labels)`. The number of epochs is
        the common one, or `epochs`.
        """
        ...

    def measure_backdoor_success(self, weights: Tensor) -> float:
        """Return the share of the client's stamped samples of other classes that a model predicts as the target."""
        ...

    def compute_gradient(self, clean: bool = False) -> Tensor:
        """Return the gradient of the loss at the global model, on poisoned or on clean samples, (d,)."""
        ...

    def arrange(self, row: Tensor) -> Tensor:
        """Return a row such as those of an `AttackerView` in the trainer's order of columns."""
        ...

    def make_stream(self, *name: str | int) -> torch.Generator:
        """Return a new generator for one purpose of this client, the same in every round unless named by round."""
        ...


@runtime_checkable
class TrainingAttack(Protocol):
    """An attack whose clients train in their own way."""

    def train(self, session: LocalSession) -> Tensor:
        """Return the local model, (d,)."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackerView:
    """The part of a round that attackers see when they decide what to send.

    All rows are finite. The server drops updates that are not, from attackers and others, so they do not appear here.

    Attributes:
        rows: (m, d) the trained updates of all attackers, or of one attacker if it knows only its own.
        examples: (m,) training examples behind each row.
        others: (b, d) the updates of everybody else, if the attack's knowledge is "all"; None otherwise.
        cohort_size: clients in this round, attackers included.
        attacker_count: attackers in this round.
        total_examples: training examples of all clients in this round.
        base: (d,) the global model.
        layout: the columns of a row.
        memory: what an attack that keeps a memory returned last; None before that.
        clients: (m) the attackers behind the rows.
    """

    rows: Tensor
    examples: Tensor
    others: Tensor | None
    cohort_size: int
    attacker_count: int
    total_examples: float
    base: Tensor
    layout: Layout
    memory: Memory | None = None
    clients: tuple[int, ...] = ()


@runtime_checkable
class CraftingAttack(Protocol):
    """An attack that changes what its clients send."""

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the updates that the attackers send instead, (m, d)."""
        ...
