from typing import Any

import pytest
import torch

from snowball.defenses import Context, VotingCenter, VotingRandom
from snowball.defenses.ops import count_ties
from snowball.errors import SettingError
from snowball.testing import make_toy_round


def test_voting_ablations_by_hand(worked: Any) -> None:
    centre = VotingCenter(first_share=0.4)(worked.updates, Context(round=1))
    assert centre.elected.nonzero().flatten().tolist() == [1, 3, 4, 5]
    assert torch.as_tensor(centre.facts["distance"]).argsort()[:4].sort().values.tolist() == [1, 3, 4, 5]
    drawn = VotingRandom(first_share=0.4)(worked.updates, Context(round=1))
    assert drawn.facts["votes"].sum() == 10 * 4
    assert drawn.elected.sum() == 4
    votes = torch.as_tensor(drawn.facts["votes"])
    assert votes.dtype == torch.float64  # as in the other elections
    assert votes[drawn.elected].min() >= votes[~drawn.elected].max()
    assert drawn.facts["ties"] == count_ties(votes, drawn.elected)


def test_votes_at_random_change_with_the_round() -> None:
    chosen = {tuple(VotingRandom()(make_toy_round(), Context(round=round)).elected.tolist()) for round in range(1, 9)}
    assert len(chosen) > 1


@pytest.mark.parametrize("make", [VotingRandom, VotingCenter])
def test_a_tenth_is_elected_by_the_first_and_last_layer(make: Any) -> None:
    updates = make_toy_round(clients=20)
    assert make()(updates, Context(round=1)).elected.sum() == 2
    with pytest.raises(SettingError, match=r"^first_share must lie in \(0, 1\], got 0"):
        make(first_share=0.0)


def test_the_centre_of_fewer_than_three_is_nowhere() -> None:
    assert VotingCenter.min_updates == 3
