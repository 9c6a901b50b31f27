"""DnC: divide and conquer, which removes outliers along the direction in which updates differ most.

Shejwalkar, Houmansadr, "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning", NDSS 2021. Poisoned updates that act together shift the updates along one direction. DnC centres the updates,
restricted to randomly drawn columns, and removes those that lie farthest out on the top singular vector.

Deviations: the singular vector comes from the inner products of the updates, never from their columns. If all updates
would be removed, the innermost one stays. Updates that do not differ are all kept.
"""

from dataclasses import dataclass
from math import floor
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_equally, check_count, count_rows, elect_everyone, elect_lowest
from snowball.errors import SettingError
from snowball.products import BLOCK_ELEMENTS, centre_products
from snowball.updates import Updates


@dataclass(frozen=True)
class DnC:
    """Average the updates that are not outliers along the direction in which updates differ most.

    Attributes:
        tolerate: malicious updates to withstand (the paper's m); an int is their number, a float their share, rounded.
        columns: randomly drawn columns to look at, drawn again for every pass (the paper's b).
        iterations: passes; only the updates that every pass keeps are averaged (the paper's niters).
        filter: updates to remove per update to withstand; the product is rounded down (the paper's c).
    """

    min_updates: ClassVar[int] = 3
    tolerate: int | float = 0.2
    columns: int = 10_000
    iterations: int = 1
    filter: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_count("tolerate", self.tolerate)
        if self.columns < 1 or self.iterations < 1:
            raise SettingError(
                f"columns and iterations must be 1 or more, got {self.columns} columns, {self.iterations} iterations"
            )
        if not 0 <= self.filter < float("inf"):
            raise SettingError(f"filter must be 0 or more, got {self.filter}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Remove the outliers of every pass."""
        kept = len(updates) - self._removals(len(updates))
        elected, rng, lots = elect_everyone(updates), context.stream("columns"), context.draw_lots(updates.clients)
        for _ in range(self.iterations):
            scores = score_outliers(compute_drawn_gram(updates, self.columns, rng))
            inliers = elect_lowest(scores, kept, lots) if scores.any() else elect_everyone(updates)
            elected &= inliers
        elected = elected if elected.any() else inliers
        return Verdict(average_equally(updates, elected), elected, {"scores": scores, "removed": len(updates) - kept})

    def _removals(self, rows: int) -> int:
        """Return how many updates each pass removes; at least one is left."""
        removals = floor(round(self.filter * count_rows(self.tolerate, rows, round), 9))
        if isinstance(self.tolerate, int) and removals >= rows:
            raise SettingError(f"tolerating {self.tolerate} needs over {removals} updates, got {rows}")
        return min(removals, rows - 1)


def compute_drawn_gram(updates: Updates, columns: int, rng: torch.Generator) -> Tensor:
    """Return the (n, n) inner products of the centred rows, restricted to columns drawn without replacement."""
    if columns >= updates.layout.width:
        return updates.gram()
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    drawn = torch.randperm(updates.layout.width, generator=rng)[:columns].sort().values
    for some in torch.split(drawn, max(1, BLOCK_ELEMENTS // len(updates))):
        block = updates.read_columns(some).double()
        block -= block[0].clone()  # a part that all rows share would swamp their differences
        products += block @ block.T
    return centre_products(products)


def score_outliers(gram: Tensor) -> Tensor:
    """Return each centred row's (n,) squared component along the top right singular vector; 0 if all rows agree."""
    squares, vectors = torch.linalg.eigh(gram)  # ascending
    scores: Tensor = squares[-1].clamp(min=0) * vectors[:, -1] ** 2
    return scores
