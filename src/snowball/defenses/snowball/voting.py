"""The paper's two ablations of the bottom-up election: random votes, and votes for the centre.

Qin et al., AAAI 2024, compared approaches. No top-down election follows either. A voter may vote for itself.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_by_examples, count_ties, elect_highest, elect_lowest
from snowball.defenses.snowball.layers import Layers, check_share, count_share, select_voting_layers
from snowball.updates import Updates


@dataclass(frozen=True)
class VotingRandom:
    """Average the updates with the most votes, where every update votes for a few at random.

    Attributes:
        first_share: share of the updates that each one votes for, and share that is elected, rounded up.
    """

    first_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1]."""
        check_share("first_share", self.first_share)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Draw the ballots and count them."""
        count = count_share(self.first_share, len(updates), ceil)
        draws = torch.rand(len(updates), len(updates), generator=context.stream("ballots"))
        approved = draws.argsort(1)[:, :count]  # (voter, vote)
        votes = approved.flatten().bincount(minlength=len(updates)).double()
        elected = elect_highest(votes, count, context.draw_lots(updates.clients))
        ties = count_ties(votes, elected)
        return Verdict(average_by_examples(updates, elected), elected, {"votes": votes, "ties": ties})


@dataclass(frozen=True)
class VotingCenter:
    """Average the few updates nearest to the mean of all, for which every update votes.

    Attributes:
        layers: the layers in which the distance to the mean is measured, as in Snowball.
        first_share: share of the updates that is elected, rounded up.
    """

    min_updates: ClassVar[int] = 3
    layers: Layers = "ends"
    first_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1]."""
        check_share("first_share", self.first_share)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect the rows nearest to the mean."""
        layers = select_voting_layers(updates.layout, self.layers)
        distances = torch.stack([updates.gram(layer).diagonal() for layer in layers]).sum(0)  # centred: to the mean
        count = count_share(self.first_share, len(updates), ceil)
        elected = elect_lowest(distances, count, context.draw_lots(updates.clients))
        return Verdict(average_by_examples(updates, elected), elected, {"distance": distances})
