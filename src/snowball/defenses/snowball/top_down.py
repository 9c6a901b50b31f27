"""The top-down election: the elected pick the candidates that resemble them, a few at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.ops import rank_lowest
from snowball.defenses.snowball.judges import Judge


@dataclass(frozen=True)
class Growth:
    """The course of a top-down election.

    Attributes:
        elected: (n,) bool, the rows elected in the end.
        order: (n,) the step at which a row joined: 0 if it was elected before, -1 if it never joined.
        score: (n,) the judge's score when a row joined, or its last one if it never did; NaN if it was elected before.
        margin: (n,) how far a row's score was below the best score that did not join in the same step; NaN elsewhere.
    """

    elected: Tensor
    order: Tensor
    score: Tensor
    margin: Tensor


def grow_elected(selectees: Tensor, target: int, step: int, judge: Judge, lots: Tensor) -> Growth:
    """Let the `step` candidates with the lowest scores join the selectees, repeatedly, until `target` are elected.

    Of equal scores, the lower of the rows' (n,) lots wins.
    """
    joined = torch.where(selectees, 0, -1)
    score = torch.full(joined.shape, torch.nan, dtype=torch.float64)
    margin = score.clone()
    turn = 0
    while (wanted := min(step, target - int((joined >= 0).sum()))) > 0:
        turn += 1
        candidates = (joined < 0).nonzero()[:, 0]
        scores = judge((joined >= 0).nonzero()[:, 0], candidates).double()
        ranked = rank_lowest(scores, lots[candidates])
        score[candidates] = scores
        picked = ranked[:wanted]
        joined[candidates[picked]] = turn
        if len(candidates) > wanted:
            margin[candidates[picked]] = scores[ranked[wanted]] - scores[picked]
    return Growth(joined >= 0, joined, score, margin)
