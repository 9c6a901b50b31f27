"""Krum: take the single update that is closest to its nearest peers.

Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017. With f malicious among K updates, the score of an update is the sum of its squared distances to the
K - f - 2 nearest others. If K > 2f + 2, some of these are benign, so an update with a low score cannot be far from the
benign ones.

Deviations: K > 2f + 2 is not required, only that each update has a neighbour. Ties are decided by lot. The variant
"published" is what the code published with the Snowball paper calls Krum: it scores an update by its mean distance, not
squared, to all updates, elects K - f - 2 and averages them by examples.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import (
    average_by_examples,
    check_count,
    compute_squared_distances,
    count_rows,
    elect_lowest,
    sort_rows,
)
from snowball.errors import SettingError
from snowball.updates import Updates

VARIANTS = ("original", "published")


@dataclass(frozen=True)
class Krum:
    """Take the single update closest to its nearest peers.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f).
        variant: "original" as in Krum's paper, or "published" as in the code published with the Snowball paper.
    """

    min_updates: ClassVar[int] = 3
    tolerate: int | float = 0.3
    variant: Literal["original", "published"] = "original"

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_count("tolerate", self.tolerate)
        if self.variant not in VARIANTS:
            raise SettingError(f"variant {self.variant!r} is not one of {', '.join(VARIANTS)}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Score every row and elect the lowest scores."""
        rows, malicious = len(updates), count_tolerated(self.tolerate, len(updates))
        squared, lots = compute_squared_distances(updates.products()), context.draw_lots(updates.clients)
        if self.variant == "original":
            scores = compute_krum_scores(squared, rows - malicious - 2)
            elected = elect_lowest(scores, 1, lots)
        else:
            scores = compute_krum_scores(squared.sqrt(), rows - 1) / rows
            elected = elect_lowest(scores, max(rows - malicious - 2, 1), lots)
        return Verdict(average_by_examples(updates, elected), elected, {"scores": scores, "tolerated": malicious})


def compute_krum_scores(distances: Tensor, neighbours: int) -> Tensor:
    """Return each row's (n,) sum of (n, n) distances, which Krum takes squared, to its nearest others.

    The number of neighbours is at least one and at most all others; a single row scores 0.
    """
    return sort_rows(distances)[:, 1 : max(neighbours, 1) + 1].sum(1)  # the first is each row's zero to itself


def count_tolerated(setting: int | float, rows: int, each: int = 1) -> int:
    """Return how many malicious rows a setting means, if a round needs `each` times their number of rows plus 3.

    A share is rounded up and limited to what the rows allow; a number that they do not allow is refused.
    """
    if isinstance(setting, float):
        return min(count_rows(setting, rows, ceil), max((rows - 3) // each, 0))
    if rows < each * setting + 3:
        raise SettingError(f"tolerating {setting} needs over {each * setting + 2} updates, got {rows}")
    return setting
