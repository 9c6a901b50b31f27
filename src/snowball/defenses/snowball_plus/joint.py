"""All traces together: a charge is a guess at who is infected, and every trace that agrees with it refines it.

Given a group of suspects, each trace gives every update a score to which the update itself does not contribute. The
scores are added with the weights of a naive Bayes classifier between suspects and others, and the sum is cut in two.
The upper group becomes the new suspects, and this repeats for a few passes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.snowball_plus.ballots import MAX_CHARGED_SHARE
from snowball.defenses.snowball_plus.evidence import POSITIONS, Evidence
from snowball.defenses.snowball_plus.statistics import compare_groups, cut_in_two, standardise

PASSES = 4
"""Times that the suspects are refined."""

SLACK = 1.25
"""Standard deviations of the upper group that a suspect may be below its median; whoever is lower goes free."""

CLEAR = 4.0
"""Standard deviations above the mean of the rest from which a suspect does not go free."""

SMALLEST_SPREAD = 0.05
"""The least variance within the groups that a trace is given, so that none decides alone."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """The verdict of all traces together.

    Attributes:
        suspects: (n,) bool.
        scores: (n,) how suspicious each update is.
        separation: how far apart suspects and others are.
        weights: the weight of each trace.
    """

    suspects: Tensor
    scores: Tensor
    separation: float
    weights: dict[str, float]


def judge_together(evidence: Evidence, suspects: Tensor) -> Judgement:
    """Refine a charge by all traces."""
    for _ in range(PASSES):
        traces = score_traces(evidence, suspects)
        features = torch.stack(list(traces.values()), 1)  # (n, traces)
        weights = weigh_traces(features, suspects)
        scores = features @ weights
        upper, separation = cut_in_two(scores)
        refined = upper & (scores > find_bound(scores, upper)) if upper.any() else upper
        if not 1 <= refined.sum() <= MAX_CHARGED_SHARE * len(evidence):
            break
        suspects = refined
    return Judgement(suspects, scores, separation, dict(zip(traces, weights.tolist(), strict=True)))


def find_bound(scores: Tensor, upper: Tensor) -> float:
    """Return the lowest score that a suspect may have: near the other suspects', or at least far above the rest's."""
    above, below = scores[upper], scores[~upper]
    near_suspects = above.quantile(0.5) - SLACK * above.var(correction=0).sqrt()
    far_from_rest = below.mean() + CLEAR * below.var(correction=0).sqrt()
    return float(torch.minimum(near_suspects, far_from_rest)) - 1e-12


def score_traces(evidence: Evidence, suspects: Tensor) -> dict[str, Tensor]:
    """Return how similar each of the (n,) updates is to the suspects, by trace."""
    traces = {"length": evidence.log_lengths}
    if evidence.alignment is not None:
        traces["alignment"] = evidence.alignment
    if evidence.leans is not None:
        target = find_target(evidence.leans, suspects)
        traces["lean"] = evidence.leans[:, target]
        if evidence.fits is not None:
            traces["misfit"] = -evidence.fits[:, target]
    for name, shares in evidence.inputs.items():
        apart = shares - shares.mean(0)
        if name != POSITIONS:
            traces[f"direction {name}"] = compare_groups(evidence.directions[name], suspects)
        traces[f"inputs {name}"] = compare_groups(apart @ apart.T, suspects)
    if evidence.positions is not None:
        position = find_position(evidence.positions, suspects)
        traces["direction at one position"] = compare_groups(evidence.positions[position], suspects)
    traces |= {f"recalled direction {name}": each for name, each in evidence.recalled_directions.items()}
    traces |= {f"recalled inputs {name}": each for name, each in evidence.recalled_inputs.items()}
    return {name: standardise(each) for name, each in traces.items()}


def find_target(leans: Tensor, suspects: Tensor) -> int:
    """Return the class that a group leans to most."""
    return int(leans[suspects].mean(0).argmax())


def find_position(products: Tensor, suspects: Tensor) -> int:
    """Return the position at which a group points the same way most, in the (positions, n, n) products."""
    return int(products[:, suspects][:, :, suspects].mean((1, 2)).argmax())


def weigh_traces(features: Tensor, suspects: Tensor) -> Tensor:
    """Return the (traces,) differences of the group means over the variance within the groups; never negative."""
    inside, outside = features[suspects], features[~suspects]
    scatter = (inside - inside.mean(0)).square().sum(0) + (outside - outside.mean(0)).square().sum(0)
    spread = (scatter / len(features)).clamp(min=SMALLEST_SPREAD)
    return ((inside.mean(0) - outside.mean(0)) / spread).clamp(min=0)
