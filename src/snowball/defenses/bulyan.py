"""Bulyan: run Krum repeatedly, and average the picked updates near the median of every coordinate.

El Mhamdi, Guerraoui, Rouault, "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML 2018. A malicious
update can be close to the benign ones as a whole and far off in one coordinate. Krum picks theta = K - 2f updates, one
after another; then every coordinate is the mean of the theta - 2f picked values nearest to their median.

Deviations: the paper allows many rules for picking; this is Krum. The last picks have fewer updates left than Krum
requires; they are made nevertheless, with at least one neighbour.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.krum import compute_krum_scores, count_tolerated
from snowball.defenses.ops import check_count, compute_medians, compute_squared_distances, sort_rows
from snowball.updates import Updates


@dataclass(frozen=True)
class Bulyan:
    """Let Krum pick most updates one by one, and average them near the median of every coordinate.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f);
            a round needs at least four times as many updates plus three.
    """

    min_updates: ClassVar[int] = 7
    tolerate: int | float = 0.2

    def __post_init__(self) -> None:
        """Refuse a setting that is neither a share nor a number."""
        check_count("tolerate", self.tolerate)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Pick rows, then reduce the picked rows column by column."""
        malicious, drawn = (
            count_tolerated(self.tolerate, len(updates), each=4),
            context.draw_lots(updates.clients).argsort(),
        )
        squared = compute_squared_distances(updates.products())[drawn][:, drawn]
        picked = drawn[pick_rows(squared, len(updates) - 2 * malicious, malicious)]
        places = torch.full((len(updates),), -1)
        places[picked] = torch.arange(len(picked))
        elected = places >= 0
        delta = updates.reduce_columns(
            lambda block: average_near_median(block[:, elected], len(picked) - 2 * malicious)
        )
        return Verdict(delta, elected, {"order": places, "tolerated": malicious})


def pick_rows(squared: Tensor, count: int, malicious: int) -> Tensor:
    """Return the (count,) rows that Krum elects one after another, each from the rows that are left."""
    left, picked = torch.arange(len(squared)), []
    for _ in range(count):
        scores = compute_krum_scores(squared[left][:, left], len(left) - malicious - 2)
        picked.append(left[scores.argmin()])  # the first of equal scores
        left = left[left != picked[-1]]
    return torch.stack(picked)


def average_near_median(block: Tensor, count: int) -> Tensor:
    """Return the (w,) means of the `count` values nearest to the median in each row of a (w, n) block.

    A tie goes to the lower value. In sorted order the nearest values are contiguous: the window starts after each value
    that is farther below the median than the value `count` positions later, which would replace it, is above.
    """
    values = sort_rows(block).double()
    most = values.shape[1] - count
    start = (values[:, :most] + values[:, count:] < 2 * compute_medians(values)[:, None]).sum(1, keepdim=True)
    return values.gather(1, start + torch.arange(count)).mean(1)
