"""NNM: replace every update by the mean of its nearest neighbours, before a defense judges.

Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by Mixing: A Recipe for Optimal Byzantine ML under
Heterogeneity", AISTATS 2023. With f malicious among n updates, each becomes the mean of the n - f updates nearest to
it, itself included. Honest updates then differ less, and whoever stands out does so because of more than its data.

Deviations: ties are decided by lot.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.base import Context
from snowball.defenses.mixing import Mixed, average_members, count_minority
from snowball.defenses.ops import check_count, compute_squared_distances, elect_lowest
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class NNM:
    """Replace every update by the mean of its nearest neighbours.

    Attributes:
        tolerate: malicious updates to withstand, as a number or as a share of the updates, rounded up (the paper's f).
    """

    tolerate: int | float = 0.3

    def __post_init__(self) -> None:
        """Refuse settings that mix all updates with all others."""
        check_count("tolerate", self.tolerate)
        if not self.tolerate:
            raise SettingError(f"nnm mixes malicious updates into every row unless tolerate is above {self.tolerate}")

    def count_updates(self, rows: int) -> int:
        """Return how many updates make this many rows."""
        return rows

    def __call__(self, updates: Updates, context: Context) -> Mixed:
        """Average the neighbours of every row."""
        neighbours = len(updates) - count_minority(self.tolerate, len(updates))
        squared = compute_squared_distances(updates.products())
        members = find_neighbours(squared, neighbours, context.draw_lots(updates.clients))
        return Mixed(average_members(updates, members, updates.clients), members, torch.arange(len(updates)))


def find_neighbours(squared: Tensor, count: int, lots: Tensor) -> Tensor:
    """Return an (n, n) mask of the `count` rows nearest to each row, itself included; the lower lot breaks ties."""
    return torch.stack([elect_lowest(distances, count, lots) for distances in squared])
