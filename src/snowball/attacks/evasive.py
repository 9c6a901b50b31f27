"""An attacker who avoids the traces that a defense could accuse it by, one per setting.

Ours: what a defense is worth shows against those who know it. A defense can notice that many clients lean to one class,
that infected updates share a direction, or that their cosine with the global model is unusual. Each dodge works against
one of these traces, and any of them can be combined. What a dodge costs the backdoor is what looking for the trace is
worth.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import Plot, Scene, Work, check_share
from snowball.attacks.cba import Cba, stamp, stamp_share
from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.errors import SettingError

MAX_COSINE = 0.99
"""The largest cosine that `match_cosine` aims for: nearer to 1, the added multiple would dwarf the update."""

PARALLEL = 1e-6
"""An update counts as parallel to the global model if the rest is at most this share of its length."""


@dataclass(frozen=True)
class Evasive(Cba):
    """Every malicious client plants the whole trigger and avoids the traces that a defense could look for.

    Attributes:
        poison_ratio: largest share of a malicious client's samples that carry the trigger.
        balance: drop clean samples of the target class, and poison so few that its share is at most the mean one.
        scatter: share of the weights that the backdoor is confined to, drawn per client; 1 for all of them.
        noise: length of the noise that is added to an update, as a multiple of the update's length.
        align: give the update the same cosine with the global model as the client's honest update.
    """

    balance: bool = True
    scatter: float = 1.0
    noise: float = 0.0
    align: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        check_share("scatter", self.scatter)
        if not 0 <= self.noise < math.inf:
            raise SettingError(f"noise must be a finite number from 0, got {self.noise}")

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with some of its samples stamped and relabelled, balanced if that is set."""
        stamp_some = stamp_balanced if self.balance else stamp_share
        return stamp_some(split, self.poison_ratio, plot.mark, self.target, rng)

    def train(self, work: Work) -> Tensor:
        """The backdoored model, honest outside the client's share of the weights, and aligned if that is set."""
        if self.scatter == 1 and not self.align:
            return work.sgd()
        honest = work.sgd(clean=True)
        chosen = draw_mask(len(honest), self.scatter, work.make_stream("scatter")).to(honest.device)

        def restore(weights: Tensor) -> None:
            torch.where(chosen, weights, honest, out=weights)  # each step sees the weights that are sent

        model, wanted = work.sgd(after=restore), measure_cosine(honest - work.start, work.start)
        return work.start + match_cosine(model - work.start, work.start, wanted) if self.align else model

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The updates with noise, each as long and, if `align` is set, with the same cosine as before."""
        if not self.noise:
            return scene.rows.clone()
        return torch.stack([self._blur(row, scene.base, rng) for row in scene.rows])

    def _blur(self, row: Tensor, base: Tensor, rng: torch.Generator) -> Tensor:
        noisy = add_noise(row, self.noise, rng)
        if not self.align:
            return noisy
        return set_length(match_cosine(noisy, base, measure_cosine(row, base)), measure_length(row))


def stamp_balanced(split: Split, share: float, trigger: Trigger, target: int, rng: torch.Generator) -> Split:
    """The split with so few samples stamped and relabelled that the target's share is at most the classes' mean share.

    Copies of other samples replace the clean ones of the target class, if the client holds any other class. At least
    one sample is stamped and at most `int(share * n)`, or none if the share is 0.
    """
    if share == 0:
        return split
    cleared = split[replace_class(split.labels, target, rng)]
    others = set(cleared.labels.tolist()) - {target}
    count = min(int(share * len(split)), len(split) // (len(others) + 1))
    chosen = torch.randperm(len(split), generator=rng)[: max(count, 1)]
    return stamp(cleared, chosen, trigger, target)


def replace_class(labels: Tensor, unwanted: int, rng: torch.Generator) -> Tensor:
    """(n,) indices of samples: each its own, but a random one of another class for those of the unwanted class."""
    indices, is_unwanted = torch.arange(len(labels)), labels == unwanted
    others = indices[~is_unwanted]
    if len(others):
        indices[is_unwanted] = others[torch.randint(len(others), (int(is_unwanted.sum()),), generator=rng)]
    return indices


def draw_mask(width: int, share: float, rng: torch.Generator) -> Tensor:
    """(d,) a random share of the columns, rounded to a whole number of them."""
    chosen = torch.zeros(width, dtype=torch.bool)
    chosen[torch.randperm(width, generator=rng)[: round(share * width)]] = True
    return chosen


def add_noise(row: Tensor, multiple: float, rng: torch.Generator) -> Tensor:
    """(d,) the row with Gaussian noise of a multiple of its length, shortened to the length that it had."""
    drawn = torch.randn(len(row), generator=rng, dtype=torch.float64).to(row.device)
    length, whole = measure_length(row), math.hypot(1, multiple)
    noisy = row.double() / whole + set_length(drawn, length * (multiple / whole))
    return set_length(noisy, length).to(row.dtype)


def match_cosine(update: Tensor, base: Tensor, cosine: float) -> Tensor:
    """(d,) the update with that multiple of the base added which gives it this cosine with the base.

    A cosine beyond `MAX_COSINE` is replaced by that. The update is returned unchanged if no multiple changes its
    cosine, because the base is zero or the update is parallel to it.
    """
    if (size := measure_length(base)) == 0:
        return update
    unit = base.double() / size
    along = float(update.double() @ unit)
    across = measure_length(update.double() - along * unit)
    if across <= PARALLEL * measure_length(update):
        return update
    cosine = min(max(cosine, -MAX_COSINE), MAX_COSINE)
    wanted = across * cosine / math.sqrt(1 - cosine**2)
    return (update.double() + (wanted - along) * unit).to(update.dtype)


def measure_cosine(row: Tensor, other: Tensor) -> float:
    """The cosine of the angle between two rows; 0 where one of them is zero."""
    lengths = measure_length(row) * measure_length(other)
    return float(row.double() @ other.double()) / lengths if lengths else 0.0


def measure_length(row: Tensor) -> float:
    """The Euclidean length of a row."""
    return float(torch.linalg.vector_norm(row, dtype=torch.float64))


def set_length(row: Tensor, length: float) -> Tensor:
    """(d,) the row, scaled to a length; a row of zeros stays as it is."""
    return row * (length / (measure_length(row) or 1.0))
