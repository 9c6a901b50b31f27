"""ARC: clip the longest updates before a defense judges; how many follows from the number of malicious ones.

Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, "Adaptive Gradient Clipping for Robust Federated Learning",
arXiv 2405.14432, 2024. With f malicious among n updates, the k = floor(2 (f/n) (n - f)) longest are clipped to the
length of the next one. A bound that follows the updates costs none of the guarantees of the defense behind it.

Deviations: none in the rule. k is computed in whole numbers, which no rounding makes smaller.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from snowball.defenses.base import Context
from snowball.defenses.mixing import Mixed, count_minority, leave_unmixed, mix_rows
from snowball.defenses.ops import check_count, compute_clip_factors
from snowball.updates import Updates


@dataclass(frozen=True)
class ARC:
    """Clip the longest updates to the length of the longest other one.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f).
    """

    tolerate: int | float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_count("tolerate", self.tolerate)

    def count_updates(self, rows: int) -> int:
        """Return how many updates make this many rows."""
        return rows

    def __call__(self, updates: Updates, context: Context) -> Mixed:
        """Clip the longest rows."""
        factors = compute_arc_factors(updates.squared_norms.sqrt(), count_minority(self.tolerate, len(updates)))
        values = mix_rows(updates, len(updates), factors[:, None].mul)
        return replace(leave_unmixed(updates), updates=updates.replace_values(values))


def compute_arc_factors(lengths: Tensor, malicious: int) -> Tensor:
    """Return the (n,) factors that clip the longest rows to the length of the longest other one."""
    rows = len(lengths)
    clipped = 2 * malicious * (rows - malicious) // rows
    return compute_clip_factors(lengths, float(lengths.sort().values[rows - clipped - 1]))
