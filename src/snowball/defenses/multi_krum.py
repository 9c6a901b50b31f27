"""Multi-Krum: average the updates that are closest to their nearest peers.

Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017. The scores are Krum's; the mean of the m updates that score lowest is less noisy than the lowest alone.

Deviations: the paper leaves m open; here it defaults to K - f - 2, the number of neighbours of an update.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from snowball.defenses.base import Context, Verdict
from snowball.defenses.krum import compute_krum_scores, count_tolerated
from snowball.defenses.ops import average_equally, check_count, compute_squared_distances, count_rows, elect_lowest
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class MultiKrum:
    """Average the updates closest to their nearest peers.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f).
        elect: updates to average, as a number or as a share, rounded up (the paper's m); None means K - f - 2.
    """

    min_updates: ClassVar[int] = 3
    tolerate: int | float = 0.3
    elect: int | float | None = None

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_count("tolerate", self.tolerate)
        if self.elect is not None:
            check_count("elect", self.elect)
        if self.elect == 0:
            raise SettingError(f"elect must leave somebody to average, got {self.elect}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Score every row and elect the lowest scores."""
        rows, malicious = len(updates), count_tolerated(self.tolerate, len(updates))
        scores = compute_krum_scores(compute_squared_distances(updates.products()), rows - malicious - 2)
        elected = elect_lowest(scores, self._seats(rows, malicious), context.draw_lots(updates.clients))
        return Verdict(average_equally(updates, elected), elected, {"scores": scores, "tolerated": malicious})

    def _seats(self, rows: int, malicious: int) -> int:
        seats = rows - malicious - 2 if self.elect is None else count_rows(self.elect, rows, ceil)
        if seats > rows:
            raise SettingError(f"electing {seats} needs as many updates, got {rows}")
        return max(seats, 1)
