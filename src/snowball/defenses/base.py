"""The contract of every defense: it takes updates and a context and returns a verdict.

A defense acts on the server. With an additional method it also acts during the clients' local training
(`LocalDefense`) or when the model is used (`PredictionDefense`). A defense that compares updates with one that the
server trains itself, on samples that it trusts, states the number of these samples (`TrustingDefense`), and so does
one that runs the clients' models on such samples (`InspectingDefense`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from snowball.errors import SettingError, UpdateError
from snowball.layout import Layout
from snowball.rng import derive, stream
from snowball.updates import Updates

T = TypeVar("T")

State = Mapping[str, Any]
"""The memory of a defense from round to round: nested dicts and lists of tensors, numbers and strings."""

REJECTED = -1
"""The label that a defense returns for a sample that it refuses to classify."""


class RowField:
    """A field of a context that is set to a row, or to a function that makes the row whenever the field is read."""

    def __get__(self, context: "Context | None", owner: type | None = None) -> Tensor | None:
        """Return the row, made again if it was set to a function; None if there is none."""
        row = None if context is None else context.__dict__["base"]
        return row if row is None or isinstance(row, Tensor) else row()

    def __set__(self, context: "Context", row: Tensor | Callable[[], Tensor] | None) -> None:
        """Keep the row, or the function."""
        context.__dict__["base"] = row


class Model(Protocol):
    """The federation's model as a function of its parameters."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the (n, classes) scores of raw samples; `row` holds the parameters."""
        ...

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of noise, uniformly over all possible samples."""
        ...

    def compute_features(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the (n, f) inputs of the output layer for raw samples."""
        ...


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that a server knows about a round besides the updates.

    Attributes:
        round: the current round, counted from 1.
        rounds: the total number of rounds, if known; a defense that reads it is a `ScheduledDefense`.
        base: the global model as a row in the updates' layout, for defenses that look at whole models. A guard makes it
            again whenever it is read, since most defenses do not need it: read it once, and do not keep it for long.
        seed: the seed of all randomness in this run.
        state: the state in the last verdict; None in the first round.
        model: the model whose parameters the rows hold, for defenses that run models.
        trusted: (d,) an update that the server trained itself, for a `TrustingDefense`.
        samples: (m, ...) clean raw samples that the server holds, for an `InspectingDefense`.
        device: the device for long computations; updates, verdicts and random draws stay on the CPU.
    """

    round: int
    rounds: int | None = None
    base: RowField = RowField()
    seed: int = 0
    state: State | None = None
    model: Model | None = None
    trusted: Tensor | None = None
    samples: Tensor | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse an impossible round number."""
        if self.round < 1 or (self.rounds is not None and self.rounds < self.round):
            raise SettingError(f"round {self.round} of {self.rounds} cannot be: rounds count from 1")

    def stream(self, *name: str | int) -> torch.Generator:
        """Return a random stream for one purpose of a defense in this round."""
        return stream(self.seed, "defense", "round", self.round, *name)

    def draw_lots(self, clients: Sequence[str]) -> Tensor:
        """Return the (n,) lots that break ties in this round: hashes of seed, round and client id. The lowest wins.

        Neither a client's claims nor the order of arrival matter, and over the rounds all clients have the same chance.
        """
        return torch.tensor([derive(self.seed, "lot", "round", self.round, client) for client in clients])


def require(value: T | None, name: str, defense: str) -> T:
    """Return a value that a defense needs from its context; refuse None."""
    if value is None:
        raise SettingError(f"{defense} needs Context.{name}, which is not given")
    return value


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision of a defense, and the evidence for it.

    Attributes:
        delta: (d,) the change to add to the global model.
        elected: (n,) bool, the rows that `delta` is made from, in the order of the updates' clients.
        facts: the evidence by name; (n,) tensors hold one value per row. Names that start with `seconds.` are times.
        state: the state to pass on in the next round's context.
        suspects: (n,) bool, the rows left out on evidence against them; None if the defense only prefers others.
        clients: (n) the ids of the updates' clients; the caller fills them in, not the defense.
    """

    delta: Tensor
    elected: Tensor
    facts: Mapping[str, Tensor | float | str] = field(default_factory=dict)
    state: State | None = None
    suspects: Tensor | None = None
    clients: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the elected clients."""
        if len(self.clients) != len(self.elected):
            raise UpdateError("this verdict does not know whose rows it judged: pair `elected` with `updates.clients`")
        return tuple(client for client, chosen in zip(self.clients, self.elected.tolist(), strict=True) if chosen)


class Defense(Protocol):
    """Decides which updates of a round change the global model, and how."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Judge one round without modifying the updates."""
        ...


def check_calls(defense: type[Defense]) -> None:
    """Make a defense class refuse, in one sentence, anything but updates and a context, and name its clients."""
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
        model: the global model, to be trained in place; it takes `inputs` as they are and normalises them itself.
        inputs: (n, ...) the client's samples; pixels lie in 0..1.
        labels: (n,) the classes of the samples.
        classes: the number of classes.
        epochs: passes over the samples in plain training.
        batch: samples per step in plain training.
        rate: the learning rate of plain training in this round.
        rng: the generator for all randomness.
        state: the value that this client's last task returned; None in its first task.
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
        """Train the task's model, in place of plain SGD, and return the state for this client's next task."""
        ...


@runtime_checkable
class PredictionDefense(Protocol):
    """A defense that also changes the predictions of the model."""

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        """Return the (n,) labels of raw samples, or `REJECTED`; the context's base is the model in use."""
        ...


@runtime_checkable
class TrustingDefense(Protocol):
    """A defense that compares updates with one that the server trains itself."""

    @property
    def trusted_examples(self) -> int:
        """The number of clean samples that the server trains on."""
        ...


@runtime_checkable
class InspectingDefense(Protocol):
    """A defense that runs the clients' models on samples of the server."""

    @property
    def inspected_examples(self) -> int:
        """The number of clean samples that the server runs models on."""
        ...


@runtime_checkable
class ScheduledDefense(Protocol):
    """A defense that reads the context's `rounds`: a run with more rounds may differ from its first round on."""

    def explain_schedule(self) -> str:
        """Say which setting is relative to the total number of rounds; empty if none is."""
        ...


@runtime_checkable
class StatefulDefense(Protocol):
    """A defense that checks its own state when a run or a guard continues from it."""

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Raise a RunError for a state that `round` rounds of a federation with this model cannot have left."""
        ...


@runtime_checkable
class StatefulLocalDefense(Protocol):
    """A defense that also checks the states that its clients keep between their tasks."""

    def check_client_state(self, state: State, shape: Sequence[int], classes: int) -> None:
        """Raise a RunError for a state that no task on samples of this shape and these classes can have left."""
        ...


def check_state(defense: Defense, state: State | None, round: int, layout: Layout) -> None:
    """Let a defense refuse a loaded state; one without a method for it is trusted."""
    if state and isinstance(defense, StatefulDefense):
        defense.check_state(state, round, layout)


def explain_schedule(defense: Defense) -> str:
    """Say why a defense's verdicts depend on the total number of rounds; empty if they do not."""
    return defense.explain_schedule() if isinstance(defense, ScheduledDefense) else ""


def has_fresh_deltas(defense: Defense) -> bool:
    """Whether a defense promises that nobody else holds the deltas of its verdicts, so that they may be overwritten.

    A class promises it as `fresh_deltas` for itself: a subclass may keep what it returns.
    """
    return bool(vars(type(defense)).get("fresh_deltas", False))


def find_min_updates(defense: Defense) -> int:
    """Return how many updates a defense needs to outvote one of them: its `min_updates`, or 1 if it outvotes nobody."""
    found: int = getattr(defense, "min_updates", 1)
    return found
