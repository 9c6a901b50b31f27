"""What every attack is: a way to poison the data of malicious clients, and a way to see whether it worked.

An attack may do more, by having a method more: train in its own way (`TrainingAttack`), and change what its clients
send once they know what others send (`CraftingAttack`). What an attacker may look at is its `view`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from snowball.data import Dataset, Split
from snowball.data.triggers import TRIGGERS, Trigger, find_trigger
from snowball.errors import SettingError
from snowball.updates import Layout

LOOK = 200
"""Samples on which a trigger must show: white on white paper is none."""

View = Literal["own", "colluders", "all"]
"""What an attacker sees beside the global model: its own data and update, those of all attackers, or everybody's."""


@dataclass(frozen=True, eq=False)
class Plot:
    """What an attacker works with.

    Attributes:
        dataset: the data set that all clients hold parts of; its training samples stand for public ones like them.
        trigger: the mark that the attack's `trigger` names, as this data set can carry it; None where it names none.
    """

    dataset: Dataset
    trigger: Trigger | None

    @property
    def mark(self) -> Trigger:
        """The trigger of an attack that has one."""
        if self.trigger is None:
            raise SettingError("the attack stamps a trigger, and none is named")
        return self.trigger


def plot_of(attack: "Attack", dataset: Dataset) -> Plot:
    """What an attack works with on a data set; refused where it wants classes or marks that this cannot have."""
    for setting in ("target", "source"):
        number = getattr(attack, setting, None)
        if number is not None and number >= dataset.classes:
            raise SettingError(f"attack.{setting} = {number} is none of the {dataset.classes} classes from 0")
    if attack.trigger is None:
        return Plot(dataset, None)
    if (named := find_trigger(attack.trigger)) is None:
        raise SettingError(f"attack.trigger = {attack.trigger!r} is not known; there are {', '.join(TRIGGERS)}")
    mark, seen = named.make(dataset), dataset.test.inputs[:LOOK]
    if len(seen) and torch.equal(mark.stamp(seen), seen):
        raise SettingError(f"attack.trigger = {attack.trigger!r} cannot be seen on the samples of {dataset.name}")
    return Plot(dataset, mark)


class Attack(Protocol):
    """Poisons the training data of malicious clients."""

    view: ClassVar[View]

    @property
    def target(self) -> int | None:
        """The class that the attacker wants samples to be taken for; None where it wants no class."""
        ...

    @property
    def trigger(self) -> str | None:
        """The name of the mark that the model shall obey; None where there is none."""
        ...

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """A malicious client's training data, the same in every round; the split is left as it is."""
        ...

    def probe(self, plot: Plot) -> Split | None:
        """Test samples with the labels that the attacker wants for them; None where no label is wanted."""
        ...


class Work(Protocol):
    """A malicious client's training in one round. Rows are in an order of their own, layers in the model's order."""

    layout: Layout
    round: int
    start: Tensor  # (d,) the global model

    def sgd(
        self,
        before: Callable[[Tensor, Tensor], None] | None = None,
        after: Callable[[Tensor], None] | None = None,
        clean: bool = False,
    ) -> Tensor:
        """(d,) what local training makes of the global model, on poisoned samples or on clean ones.

        Before each step `before(weights, gradient)` may change the gradient in place, after it `after(weights)` the
        weights.
        """
        ...

    def obedience(self, weights: Tensor) -> float:
        """The share of the client's samples of other classes that, once stamped, a model takes for the target."""
        ...

    def gradient(self, clean: bool = False) -> Tensor:
        """(d,) of the loss at the global model, on poisoned samples or on clean ones."""
        ...

    def make_stream(self, *name: str | int) -> torch.Generator:
        """A new generator for one purpose of this client, the same in every round; name the round if it matters."""
        ...


@runtime_checkable
class TrainingAttack(Protocol):
    """An attack whose clients train in their own way."""

    def train(self, work: Work) -> Tensor:
        """(d,) the local model."""
        ...


@dataclass(frozen=True, eq=False)
class Scene:
    """What attackers know of a round when they decide what to send.

    Rows are finite: who trained anything else, attacker or not, has none here and is dropped by the server.

    Attributes:
        rows: (m, d) the updates that their training gave, of all attackers, or of one where the view is its own.
        examples: (m,) training examples behind each.
        others: (b, d) the updates of everybody else, where the view is "all"; None elsewhere.
        cohort: clients in this round, attackers and others.
        attackers: attackers in this round.
        total: examples of all clients in this round.
        base: (d,) the global model.
        layout: the columns of a row.
    """

    rows: Tensor
    examples: Tensor
    others: Tensor | None
    cohort: int
    attackers: int
    total: float
    base: Tensor
    layout: Layout


@runtime_checkable
class CraftingAttack(Protocol):
    """An attack that changes what its clients send."""

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """(m, d) what the attackers send instead."""
        ...


def honest(scene: Scene) -> Tensor:
    """(b, d) what attackers know of honest updates: all others', or their own where there are none."""
    return scene.rows if scene.others is None or not len(scene.others) else scene.others


@dataclass(frozen=True)
class Untargeted:
    """An attack that wants no class and no trigger: it spoils the model by what it sends."""

    view: ClassVar[View] = "all"
    target: ClassVar[None] = None
    trigger: ClassVar[None] = None

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split as it is."""
        return split

    def probe(self, plot: Plot) -> None:
        """There is no label to look for."""


def check_share(name: str, share: float) -> None:
    """Refuse what is no share."""
    if not 0 <= share <= 1:
        raise SettingError(f"{name} is a share from 0 to 1, got {share}")


def check_positive(name: str, value: float) -> None:
    """Refuse what is no positive number."""
    if not 0 < value < float("inf"):
        raise SettingError(f"{name} must be a positive number, got {value}")
