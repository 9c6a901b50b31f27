"""Contract of every defense: updates and a context in, a verdict out.

A defense acts on the server. It may act in two more places, by having a method more: in the clients' local training
(`LocalDefense`) and where the model is used (`PredictionDefense`). One that wants the server to train an update of its
own, on samples that it trusts, says on how many (`TrustingDefense`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from snowball.errors import SettingError, UpdateError
from snowball.rng import derive, stream
from snowball.updates import Updates

T = TypeVar("T")

State = Mapping[str, Any]
"""What a defense carries from round to round: nested dicts and lists of tensors, numbers and strings."""

REJECTED = -1
"""The label of a sample that a defense refuses to label."""


class Model(Protocol):
    """The federation's model as a function of its parameters."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        """(n, classes) scores of raw samples, with the parameters in a row."""
        ...

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""
        ...


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that a server knows about a round besides the updates.

    Attributes:
        round: this round, counted from 1.
        rounds: rounds in all, where that is known.
        base: the global model as a row of the updates' layout, for defenses that look at whole models.
        seed: the seed of everything random in this run.
        state: the last verdict's state; None in the first round.
        model: what rows are the parameters of, for defenses that try models out.
        trusted: (d,) an update that the server trained itself, for a `TrustingDefense`.
        device: what to compute on where that takes long; updates and verdicts are on the CPU, as are random draws.
    """

    round: int
    rounds: int | None = None
    base: Tensor | None = None
    seed: int = 0
    state: State | None = None
    model: Model | None = None
    trusted: Tensor | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse a round that cannot be."""
        if self.round < 1 or (self.rounds is not None and self.rounds < self.round):
            raise SettingError(f"round {self.round} of {self.rounds} cannot be: rounds count from 1")

    def stream(self, *name: str | int) -> torch.Generator:
        """A random stream for one purpose of a defense in this round."""
        return stream(self.seed, "defense", "round", self.round, *name)

    def draw_lots(self, clients: Sequence[str]) -> Tensor:
        """(n,) the lots that break ties in this round, the lowest winning: a hash of seed, round and client id.

        Nothing that a client claims enters, nor who came first, and over the rounds all have the same chance.
        """
        return torch.tensor([derive(self.seed, "lot", "round", self.round, client) for client in clients])


def require(value: T | None, name: str, defense: str) -> T:
    """Return a value of a context that a defense needs; refuse None."""
    if value is None:
        raise SettingError(f"{defense} needs Context.{name}, which is not given")
    return value


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision of a defense, and the evidence for it.

    Attributes:
        delta: (d,) what to add to the global model.
        elected: (n,) bool, the rows that went into it, in the order of the updates' clients.
        facts: the evidence, by name; (n,) tensors hold one value per row. Names under `seconds.` are times.
        state: what the defense wants to see again in the next round's context.
        clients: (n) the updates' clients; a defense leaves them to its caller.
    """

    delta: Tensor
    elected: Tensor
    facts: Mapping[str, Tensor | float | str] = field(default_factory=dict)
    state: State | None = None
    clients: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the elected clients."""
        if len(self.clients) != len(self.elected):
            raise UpdateError("this verdict does not know whose rows it judged: pair `elected` with `updates.clients`")
        return tuple(client for client, chosen in zip(self.clients, self.elected.tolist(), strict=True) if chosen)


class Defense(Protocol):
    """Decides what becomes of a round's updates."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Judge one round; the updates are left as they are."""
        ...


def check_calls(defense: type[Defense]) -> None:
    """Let a class of defenses refuse, in one sentence, anything but updates and a context, and name their clients."""
    judge = defense.__call__

    @wraps(judge)
    def check_and_judge(self: Defense, updates: Updates, context: Context) -> Verdict:
        name = type(self).__name__
        if not isinstance(updates, Updates):
            advice = "make them with Updates.from_matrix or Updates.from_states"
            raise UpdateError(f"{name} judges Updates, got {type(updates).__name__}: {advice}")
        if not isinstance(context, Context):
            raise SettingError(f"{name} needs a Context, got {type(context).__name__}: pass Context(round=1)")
        return replace(judge(self, updates, context), clients=updates.clients)

    defense.__call__ = check_and_judge  # type: ignore[method-assign]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientTask:
    """Everything that a client needs for its local training in one round.

    Attributes:
        model: the global model, to be trained in place; it takes inputs as they are here and scales them itself.
        inputs: (n, ...) the client's samples; pixels lie in 0..1.
        labels: (n,) their classes.
        classes: how many classes there are.
        epochs: how often the others go over their samples.
        batch: samples in their steps.
        rate: their learning rate in this round.
        rng: for everything random.
        state: what this client's last task gave; None in the first.
    """

    model: nn.Module
    inputs: Tensor
    labels: Tensor
    classes: int
    epochs: int
    batch: int
    rate: float
    rng: torch.Generator
    state: State | None = None


@runtime_checkable
class LocalDefense(Protocol):
    """A defense that benign clients train with."""

    def train(self, task: ClientTask) -> State | None:
        """Train the task's model, in place of plain SGD; what is returned comes with this client's next task."""
        ...


@runtime_checkable
class PredictionDefense(Protocol):
    """A defense that has a say where the model is used."""

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        """(n,) the labels of raw samples, `REJECTED` for none; the context's base is the model in use."""
        ...


@runtime_checkable
class TrustingDefense(Protocol):
    """A defense that compares updates with one of the server's own."""

    @property
    def trusted_examples(self) -> int:
        """Clean samples that the server trains on."""
        ...
