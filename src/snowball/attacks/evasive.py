"""An attacker who avoids the traces that a defense could accuse it by, one per setting.

Ours: a defense must be tested against those who know it. A defense can notice that many clients favour one class, that
infected updates share a direction, or that their cosine with the global model is unusual. Each dodge hides one of these
traces, and any of them can be combined. The backdoor success that a dodge costs is the value of looking for its trace.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, AttackSetup, LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_share, stamp_samples, stamp_share
from snowball.data import Split
from snowball.data.triggers import Trigger
from snowball.errors import SettingError

MAX_COSINE = 0.99
"""The largest cosine that `match_cosine` aims for: nearer to 1, the added multiple would dominate the update."""

MAX_PARALLEL_REST = 1e-6
"""An update counts as parallel to the global model if its perpendicular part is at most this share of its length."""


@dataclass(frozen=True)
class Evasive(CBA):
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
        """Reject invalid settings."""
        super().__post_init__()
        check_share("scatter", self.scatter)
        if not 0 <= self.noise < math.inf:
            raise SettingError(f"noise must be a finite number from 0, got {self.noise}")

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Stamp and relabel some of the samples, with balanced labels if `balance` is set."""
        stamp_some = stamp_balanced if self.balance else stamp_share
        return stamp_some(split, self.poison_ratio, setup.trigger, self.target, rng)

    def train(self, session: LocalSession) -> Tensor:
        """Return the backdoored model, with honest weights outside the client's share, aligned if `align` is set."""
        if self.scatter == 1 and not self.align:
            return session.train()
        honest = session.train(clean=True)
        chosen = draw_mask(len(honest), self.scatter, session.make_stream("scatter")).to(honest.device)

        def restore(weights: Tensor) -> None:
            torch.where(chosen, weights, honest, out=weights)  # each step sees the weights that are sent

        model, wanted = session.train(after=restore), measure_cosine(honest - session.start, session.start)
        return session.start + match_cosine(model - session.start, session.start, wanted) if self.align else model

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the updates with noise, with their lengths and, if `align` is set, their cosines unchanged."""
        if not self.noise:
            return view.rows.clone()
        return torch.stack([self._add_noise(row, view.base, rng) for row in view.rows])

    def _add_noise(self, row: Tensor, base: Tensor, rng: torch.Generator) -> Tensor:
        noisy = add_noise(row, self.noise, rng)
        if not self.align:
            return noisy
        return set_length(match_cosine(noisy, base, measure_cosine(row, base)), measure_length(row))


def stamp_balanced(split: Split, share: float, trigger: Trigger, target: int, rng: torch.Generator) -> Split:
    """Stamp and relabel so few samples that the target's share is at most the mean share of the classes.

    Copies of other samples replace the clean ones of the target class, if the client holds any other class. At least
    one sample is stamped and at most `int(share * n)`, or none if the share is 0.
    """
    if share == 0:
        return split
    cleared = split[replace_class(split.labels, target, rng)]
    others = set(cleared.labels.tolist()) - {target}
    count = min(int(share * len(split)), len(split) // (len(others) + 1))
    chosen = torch.randperm(len(split), generator=rng)[: max(count, 1)]
    return stamp_samples(cleared, chosen, trigger, target)


def replace_class(labels: Tensor, unwanted: int, rng: torch.Generator) -> Tensor:
    """Return sample indices, (n,): each its own, but for the unwanted class a random one of another class."""
    indices, is_unwanted = torch.arange(len(labels)), labels == unwanted
    others = indices[~is_unwanted]
    if len(others):
        indices[is_unwanted] = others[torch.randint(len(others), (int(is_unwanted.sum()),), generator=rng)]
    return indices


def draw_mask(width: int, share: float, rng: torch.Generator) -> Tensor:
    """Draw a mask, (d,), of a random share of the columns, rounded to a whole number of them."""
    chosen = torch.zeros(width, dtype=torch.bool)
    chosen[torch.randperm(width, generator=rng)[: round(share * width)]] = True
    return chosen


def add_noise(row: Tensor, multiple: float, rng: torch.Generator) -> Tensor:
    """Add Gaussian noise of a multiple of the row's length, then rescale to the original length."""
    drawn = torch.randn(len(row), generator=rng, dtype=torch.float64).to(row.device)
    length, whole = measure_length(row), math.hypot(1, multiple)
    noisy = row.double() / whole + set_length(drawn, length * (multiple / whole))
    return set_length(noisy, length).to(row.dtype)


def match_cosine(update: Tensor, base: Tensor, cosine: float) -> Tensor:
    """Add the multiple of the base that gives the update this cosine with the base.

    A cosine beyond `MAX_COSINE` is replaced by that. The update is returned unchanged if no multiple changes its
    cosine, because the base is zero or the update is parallel to it.
    """
    if (size := measure_length(base)) == 0:
        return update
    unit = base.double() / size
    along = float(update.double() @ unit)
    across = measure_length(update.double() - along * unit)
    if across <= MAX_PARALLEL_REST * measure_length(update):
        return update
    cosine = min(max(cosine, -MAX_COSINE), MAX_COSINE)
    wanted = across * cosine / math.sqrt(1 - cosine**2)
    return (update.double() + (wanted - along) * unit).to(update.dtype)


def measure_cosine(row: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two rows; 0 if one of them is zero."""
    lengths = measure_length(row) * measure_length(other)
    return float(row.double() @ other.double()) / lengths if lengths else 0.0


def measure_length(row: Tensor) -> float:
    """Return the Euclidean length of a row."""
    return float(torch.linalg.vector_norm(row, dtype=torch.float64))


def set_length(row: Tensor, length: float) -> Tensor:
    """Scale a row to a length; a row of zeros stays as it is."""
    return row * (length / (measure_length(row) or 1.0))
