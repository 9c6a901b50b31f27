"""What every defense is: updates and a context in, a verdict out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.rng import stream
from snowball.updates import Updates

State = Mapping[str, Any]
"""What a defense carries from round to round: nested dicts and lists of tensors, numbers and strings."""


@dataclass(frozen=True)
class Context:
    """What a server knows of the round beside the updates.

    Attributes:
        round: this round, counted from 1.
        rounds: rounds in all, where that is known.
        base: the global model as a row of the updates' layout, for defenses that look at whole models.
        seed: the seed of everything random in this run.
        state: the last verdict's state; None in the first round.
    """

    round: int
    rounds: int | None = None
    base: Tensor | None = None
    seed: int = 0
    state: State | None = None

    def __post_init__(self) -> None:
        """Refuse a round that cannot be."""
        if self.round < 1 or (self.rounds is not None and self.rounds < self.round):
            raise SettingError(f"round {self.round} of {self.rounds} cannot be: rounds count from 1")

    def stream(self, *name: str | int) -> torch.Generator:
        """A random stream for one purpose of a defense in this round."""
        return stream(self.seed, "defense", "round", self.round, *name)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a defense decided, and why.

    Attributes:
        delta: (d,) what to add to the global model.
        elected: (n,) bool, the rows that went into it.
        facts: the evidence, by name; (n,) tensors are a value a row. Names under `seconds.` are times.
        state: what the defense wants to see again in the next round's context.
    """

    delta: Tensor
    elected: Tensor
    facts: Mapping[str, Tensor | float] = field(default_factory=dict)
    state: State | None = None


class Defense(Protocol):
    """Decides what becomes of a round's updates."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Judge one round; the updates are left as they are."""
        ...
