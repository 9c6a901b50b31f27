"""The ballots: each looks at one trace that infected updates leave, and charges a group of updates, or nobody.

A charge is a start: `joint` then judges every update by all traces together. The bounds were calibrated against rounds
of MNIST, Fashion-MNIST and CIFAR-10 in which nobody attacks; the docstrings have the largest numbers seen there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.snowball_plus.evidence import Evidence
from snowball.defenses.snowball_plus.statistics import (
    cut_in_two,
    rank_group,
    rank_groups,
    standardise,
    standardise_robustly,
)

MIN_SPLIT_ROWS = 16
"""Updates below which a split or a crowd may be chance, and from which some honest client is always a stranger."""

MAX_CHARGED_SHARE = 0.55
"""Share of the updates that a crowd may have: a minority, but for the chance of a round's draw."""

EIGENVECTORS = 3
"""Main directions per view in which a split is looked for."""

CLEAR_SPLIT = 11.0
"""Clarity from which a split is a charge: the clearest of the clean rounds had 9.3."""

REPEATED_SPLIT = 10.2
"""Clarity from which a split is a charge if its group points as the groups of earlier rounds did."""

MIN_AGREEMENT = 3.0
"""Rank of a group along what earlier groups had in common from which the rounds agree."""

LONE_SEPARATION = 6.5
"""Separation from which a split is a charge whatever the alignment says: the largest of the clean rounds was 5.9."""

RECALLED_CLARITY = 7.5
"""Clarity from which pointing as earlier accused did is a charge: it is one direction, and not the best of many."""

CROWD_LEAD = 1.5
"""Lead over the second class from which a crowd is a charge: the largest of clean rounds with seed 1 was 1.4, with
seed 2 some were larger, which is why crowds are suspected only if that is asked for."""

CROWD_KEPT = 0.7
"""Weight of earlier rounds in the record of crowds."""

ALIGNMENT_WEIGHT = 0.5
"""What a rank of the alignment counts in the record of crowds, beside a deviation in numbers."""

MIN_EXCESS, MAX_EXCESS, MAX_RANK = -4.0, 6.0, 4.0
"""Where the numbers of one round are cut off, so that no round decides alone."""

STRANGENESS = 6.5
"""Sum of deviations from which a client is a stranger: the largest of clean rounds with seed 1 was 5.2."""

STRANGENESS_KEPT = 0.8
"""Weight of earlier rounds in what is known of a client."""

MAX_DEVIATION = 6.0
"""Where a client's deviations are cut off."""


@dataclass(frozen=True, eq=False)
class Charge:
    """A group that a ballot accuses.

    Attributes:
        ballot: the ballot's name.
        suspects: (n,) bool.
        clarity: how clear it is, in the ballot's own unit.
        words: what the group has in common, for the audit.
    """

    ballot: str
    suspects: Tensor
    clarity: float
    words: str


def find_split(evidence: Evidence) -> Charge | None:
    """Find the group that moves together most clearly in any view, and undoes the model; whether to charge it is open.

    A backdoor that works must add up, so infected updates share a direction that others lack. The clarity is the
    separation of the two groups plus the rank of the suspects' alignment.
    """
    if len(evidence) < MIN_SPLIT_ROWS:
        return None
    best: Charge | None = None
    for view, likeness in evidence.directions.items():
        for axis in find_axes(likeness):
            upper, separation = cut_in_two(axis)
            for suspects in (upper, ~upper):
                count = int(suspects.sum())
                if not max(3, len(evidence) / 10) <= count <= len(evidence) / 2:
                    continue
                clarity = separation + rank_alignment(evidence, suspects)
                if best is None or clarity > best.clarity:
                    words = f"moves with {count - 1} others in {view}, separation {separation:.1f}"
                    best = Charge("split", suspects, clarity, words)
    return best


def find_axes(likeness: Tensor) -> Tensor:
    """(k, n) the coordinates of the rows along the directions in which they differ most."""
    vectors: Tensor = torch.linalg.eigh((likeness + likeness.T) / 2).eigenvectors
    return vectors.flip(1)[:, :EIGENVECTORS].T


def rank_alignment(evidence: Evidence, suspects: Tensor) -> float:
    """How much more a group undoes the model than the others; 0 where that is not known."""
    return 0.0 if evidence.alignment is None else rank_group(evidence.alignment, suspects)


def charge_split(evidence: Evidence, split: Charge | None) -> Charge | None:
    """Charge a split that is clear by itself, or less clear and the same as in earlier rounds."""
    if split is None:
        return None
    separation = split.clarity - rank_alignment(evidence, split.suspects)
    repeated = split.clarity >= REPEATED_SPLIT and agrees_with_earlier(evidence, split.suspects)
    return split if split.clarity >= CLEAR_SPLIT or separation >= LONE_SEPARATION or repeated else None


def agrees_with_earlier(evidence: Evidence, suspects: Tensor) -> bool:
    """Whether a group points as the groups of earlier rounds did."""
    return bool(evidence.recalled_directions) and rank_group(point_back(evidence), suspects) >= MIN_AGREEMENT


def point_back(evidence: Evidence) -> Tensor:
    """(n,) how far each row points as earlier suspects did, in all hidden layers together."""
    return torch.stack([standardise(each) for each in evidence.recalled_directions.values()]).sum(0)


def charge_recalled(evidence: Evidence) -> Charge | None:
    """Charge those who point as earlier accused did, if they stand apart and undo the model."""
    if len(evidence) < MIN_SPLIT_ROWS or not evidence.recalled_directions:
        return None
    suspects, separation = cut_in_two(point_back(evidence))
    clarity = separation + rank_alignment(evidence, suspects)
    if clarity < RECALLED_CLARITY or not 1 <= suspects.sum() <= len(evidence) / 2:
        return None
    return Charge("recalled", suspects, clarity, f"points as those accused before, separation {separation:.1f}")


def find_leaning(leans: Tensor) -> Tensor:
    """(n, classes) bool, who leans to which class: more than to all classes evenly."""
    return leans.gt(leans.shape[1] ** -0.5)


def measure_crowds(evidence: Evidence) -> Tensor | None:
    """(classes,) how many more lean to each class than on average, in deviations, and how far they undo the model."""
    if evidence.leans is None:
        return None
    leaning, rows = find_leaning(evidence.leans), len(evidence)
    counts = leaning.sum(0).double()
    share = (counts.mean() / rows).clamp(1 / rows, 1 - 1 / rows)
    excess = ((counts - counts.mean()) / (rows * share * (1 - share)).sqrt()).clamp(MIN_EXCESS, MAX_EXCESS)
    if evidence.alignment is None:
        return excess
    ranks = rank_groups(evidence.alignment, leaning.T)
    return excess + ALIGNMENT_WEIGHT * ranks.where(counts >= 3, 0).clamp(-MAX_RANK, MAX_RANK)


def remember_crowds(known: Tensor | None, measured: Tensor) -> Tensor:
    """(classes,) the record of crowds after a round."""
    before = torch.zeros_like(measured) if known is None else known
    return CROWD_KEPT * before + (1 - CROWD_KEPT) * measured


def charge_crowd(evidence: Evidence, before: Tensor | None, crowds: Tensor | None) -> Charge | None:
    """Charge those who lean to the class that has led round after round.

    Poisoned samples all carry one label, so infected clients lean to one class in every round; without an attack the
    class that most clients lean to changes. So it must lead in the record `before` this round, too.
    """
    if before is None or crowds is None or evidence.leans is None or len(evidence) < MIN_SPLIT_ROWS:
        return None
    highest = crowds.topk(2)
    lead, target = float(highest.values[0] - highest.values[1]), int(highest.indices[0])
    suspects = find_leaning(evidence.leans)[:, target]
    if (
        int(before.argmax()) != target
        or lead < CROWD_LEAD
        or not 3 <= suspects.sum() <= MAX_CHARGED_SHARE * len(evidence)
    ):
        return None
    return Charge("crowd", suspects, lead, describe_leaning(target, suspects))


def describe_leaning(target: int, suspects: Tensor) -> str:
    """What a crowd has in common, in words."""
    return f"leans to class {target} with {int(suspects.sum()) - 1} others"


def charge_fullest_class(evidence: Evidence, round: int) -> Charge | None:
    """Charge those who lean to the class that most lean to, with no further evidence.

    In the first round they are compared with the median client, since an untrained model makes all lean alike.
    """
    if evidence.leans is None or len(evidence) < MIN_SPLIT_ROWS:
        return None
    leans = evidence.leans - evidence.leans.quantile(0.5, dim=0) if round == 1 else evidence.leans
    leaning = find_leaning(leans)
    target = int(leaning.sum(0).argmax())
    suspects = leaning[:, target]
    if not 1 <= suspects.sum() <= MAX_CHARGED_SHARE * len(evidence):
        return None
    return Charge("fullest", suspects, float(suspects.double().mean()), describe_leaning(target, suspects))


def measure_strangeness(evidence: Evidence) -> Tensor:
    """(n,) how far each row deviates upwards, added up: in length, in the inputs that it rewires, in undoing the model.

    Pointing as earlier suspects did counts, too.
    """
    shares = list(evidence.inputs.values())[-1]
    traits = [evidence.log_lengths, (shares - shares.mean(0)).norm(dim=1)]
    traits += [] if evidence.alignment is None else [evidence.alignment]
    traits += [point_back(evidence)] if evidence.recalled_directions else []
    return torch.stack([standardise_robustly(each).clamp(-MAX_DEVIATION, MAX_DEVIATION) for each in traits]).sum(0)


def charge_strangers(evidence: Evidence, strangeness: Tensor) -> Charge | None:
    """Charge clients that deviate in several ways, round after round: the ballot of few sites, one of which attacks."""
    suspects = strangeness >= STRANGENESS
    if len(evidence) >= MIN_SPLIT_ROWS or not 1 <= suspects.sum() <= len(evidence) / 2:
        return None
    return Charge("strangers", suspects, float(strangeness.max()), "deviates in length, direction and rewired inputs")
