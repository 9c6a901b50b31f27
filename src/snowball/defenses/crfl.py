"""CRFL: clip the global model, add noise to it, and let noisy copies of it vote on every prediction.

Xie, Chen, Chen, Li: CRFL: Certifiably Robust Federated Learning against Backdoor Attacks, ICML 2021.

A model of bounded length that is trained with noise predicts nearly the same when its parameters move a little, so the
small change that a few clients can cause does not decide a vote.

Deviations: no certificate is computed, only the vote. In the original, the bound grows over the rounds (`ramp`),
starting far below the length of a freshly drawn network such as the Snowball paper's; here it grows only on request.
Buffers get no noise. "published" does what the published code does: it clips the update instead of the model, the
noise stays in the model, and the model is clipped and gets noise once more when it is used.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from snowball.defenses.base import Context, State, Verdict, require
from snowball.defenses.history import check_numbers, describe_damage, is_row
from snowball.defenses.ops import add_noise, average_by_examples, average_equally, compute_clip_factors, elect_everyone
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates


@dataclass(frozen=True)
class CRFL:
    """Clip the global model, add noise to it, and let noisy copies vote on every prediction.

    Attributes:
        bound: the maximum length of the model (the paper's rho).
        ramp: numbers a and b; the bound of round t is a * t + b until it reaches `bound`. None uses `bound` throughout.
        noise: standard deviation of the noise, in training and in prediction (the paper's sigma).
        copies: noisy models that vote (the paper's M; 1,000 in its certificates, 20 in the Snowball paper).
        variant: "original" as in the paper, or "published" as in the code published with the Snowball paper.
    """

    bound: float = 15.0
    ramp: tuple[float, float] | None = None
    noise: float = 0.01
    copies: int = 20
    variant: Literal["original", "published"] = "original"

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not self.bound > 0 or not 0 <= self.noise < float("inf") or self.copies < 1:
            given = f"bound {self.bound}, noise {self.noise} and {self.copies} copies"
            raise SettingError(f"crfl needs a positive bound, finite noise and at least one copy, got {given}")
        if self.ramp is not None and not (self.ramp[0] >= 0 and sum(self.ramp) > 0):
            raise SettingError(f"ramp must not fall and be positive in round 1, got {list(self.ramp)}")
        if self.variant not in ("original", "published"):
            raise SettingError(f"variant {self.variant!r} is not one of original, published")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Average all updates, clip and add noise."""
        base, rng = require(context.base, "base", "crfl").to(updates.dtype), context.stream("noise")
        bound = self._bound(context.round)
        if self.variant == "published":
            delta, clipped = shorten_row(average_by_examples(updates, elect_everyone(updates)), bound)
            return Verdict(
                add_noise(delta, self.noise, rng), elect_everyone(updates), {"bound": bound, "clipped": clipped}
            )
        clean, clipped = shorten_row(base + average_equally(updates, elect_everyone(updates)), bound)
        facts = {"bound": bound, "clipped": clipped}
        return Verdict(add_noise(clean, self.noise, rng) - base, elect_everyone(updates), facts, {"clean": clean})

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        """Return the class that most noisy copies of the model predict; all samples of a round see the same copies."""
        model, base = require(context.model, "model", "crfl"), require(context.base, "base", "crfl")
        if self.variant == "published":
            base, _ = shorten_row(base, self._bound(context.round))
        elif context.state:
            base = context.state["clean"]
        rng = context.stream("copies")
        labels = [model(add_noise(base, self.noise, rng), inputs).argmax(1) for _ in range(self.copies)]
        return find_majority(torch.stack(labels, 1), "first" if self.variant == "published" else "lowest")

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state without a finite model."""
        if not is_row(state.get("clean"), layout.width):
            raise describe_damage(f"its model without noise is not {layout.width} numbers")
        check_numbers([state["clean"]])

    def _bound(self, round: int) -> float:
        return self.bound if self.ramp is None else min(self.bound, self.ramp[0] * round + self.ramp[1])


def shorten_row(row: Tensor, bound: float) -> tuple[Tensor, float]:
    """Shorten a row to `bound` if it is longer; return it and the factor that it was multiplied by."""
    factor = float(compute_clip_factors(torch.linalg.vector_norm(row, dtype=torch.float64), bound))
    return row * factor, factor


def find_majority(labels: Tensor, tied: Literal["lowest", "first"]) -> Tensor:
    """Return the (n,) most frequent of each row's (n, m) labels; a tie goes to the lowest class or the first vote."""
    votes = one_hot(labels).sum(1)  # (n, classes)
    winners = votes == votes.amax(1, keepdim=True)
    if tied == "lowest":
        return winners.int().argmax(1)
    first = winners.gather(1, labels).int().argmax(1, keepdim=True)  # the first vote for a winner
    return labels.gather(1, first)[:, 0]
