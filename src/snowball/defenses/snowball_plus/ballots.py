"""The ballots: each looks for one trace that infected updates leave, and charges a group of updates, or nobody.

A charge is only a first guess: `joint` then judges every update by all traces together. The bounds were calibrated on
rounds of MNIST, Fashion-MNIST and CIFAR-10 without an attack ("clean rounds"); the docstrings give the largest values
seen there.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from snowball.defenses.snowball_plus.evidence import POSITIONS, Evidence, find_leaning
from snowball.defenses.snowball_plus.statistics import (
    cut_columns,
    cut_in_two,
    rank_group,
    rank_groups,
    rank_values,
    separate_groups,
    standardise,
    standardise_ranks,
)

MIN_SPLIT_ROWS = 16
"""With fewer updates, a split or a crowd may be chance; with as many, some honest client is always a stranger."""

MAX_CHARGED_SHARE = 0.55
"""The largest share of the updates that may be suspects: attackers are a minority, apart from chance in a round."""

EIGENVECTORS = 3
"""Main directions per view that are searched for a split."""

CLEAR_SPLIT = 11.0
"""Clarity from which a split is a charge: the largest in clean rounds was 9.3."""

REPEATED_SPLIT = 10.2
"""Clarity from which a split is a charge if its group points in the same direction as those of earlier rounds."""

MIN_AGREEMENT = 3.0
"""Rank of a group, along the direction of earlier groups, from which the rounds agree."""

LONE_SEPARATION = 6.5
"""Separation from which a split is a charge whatever its alignment: the largest in clean rounds was 5.9."""

RECALLED_CLARITY = 7.5
"""Clarity from which sharing earlier suspects' direction is a charge: it is one direction, not the best of many."""

CROWD_LEAD = 4.8
"""Lead over the second class from which a crowd is a charge: the largest in clean rounds was 4.5."""

REPEATED_CROWD = 3.0
"""Lead from which a crowd is a charge if it points in the same direction as those accused in earlier rounds."""

CROWD_NOW = 3.0
"""Signal of a class in the current round from which those who lean to it are charged: attackers may pause."""

CLEAR_POSITION = 3.5
"""Lead of a position in this round from which it is a charge: the largest in clean rounds was 2.0."""

REPEATED_POSITION = 1.3
"""Record of a position's leads from which it is a charge: the largest in clean rounds was 0.6."""

POSITION_NOW = 1.3
"""Lead in this round from which a position with such a record is a charge: attackers may pause."""

MAX_LEAD = 3.3
"""The lead of a position is capped here in its record, so that no round decides alone."""

TRIGGER_POSITIONS = 3
"""The most positions that a trigger is expected at: a position leads by how much it exceeds the next one."""

RECORD_KEPT = 0.7
"""Weight of earlier rounds in the records of crowds and positions."""

CAUTIOUS_ROUNDS = 6
"""Number of first rounds in which, if nobody is accused, those who lean to a suspect class weigh less."""

CAUTION = 3
"""How steeply an update's weight falls in a round without a charge: the exponent of one plus its suspicion."""

CLEAR_FIT = 3.5
"""Separation from which those who lean to a class and fit the model are told apart from those who do not fit it."""

ALIGNMENT_WEIGHT = 0.5
"""Weight of the alignment's rank in the record of crowds, where a deviation in numbers has weight 1."""

MAX_EXCESS, MAX_RANK = 4.0, 5.0
"""The numbers of one round are capped here in the record of crowds, so that no round decides alone."""

CLIENT_KEPT = 0.8
"""Weight of earlier rounds in the traits of a client."""

REPUTATION = 1.2
"""Faded number of earlier rounds with an accusation from which a client is charged in a round without other charges:
after two such rounds it is charged once more, after three in up to three rounds."""

MIN_ACCUSED_SHARE = 0.6
"""The least share of a client's rounds with a charge in which it was accused itself."""


@dataclass(frozen=True, eq=False)
class Charge:
    """A group that a ballot accuses.

    Attributes:
        ballot: the ballot's name.
        suspects: (n,) bool.
        clarity: how clear the charge is, in the ballot's own unit.
        words: what the group has in common, as text for the audit.
        bound: the clarity from which the ballot charges.
    """

    ballot: str
    suspects: Tensor
    clarity: float
    words: str
    bound: float


class Signals(NamedTuple):
    """The signals of one round alone, without the records of earlier ones.

    Attributes:
        split: the group that moves together most clearly; see `find_split`.
        crowds: (classes,); see `measure_crowds`.
        positions: (positions,); see `measure_positions`.
    """

    split: Charge | None
    crowds: Tensor | None
    positions: Tensor | None


def measure_signals(evidence: Evidence) -> Signals:
    """Measure the signals of a round."""
    return Signals(find_split(evidence), measure_crowds(evidence), measure_positions(evidence))


def measure_clarity(signals: Signals, crowds: Tensor | None) -> float:
    """Return how close the clearest signal of a round is to a charge; the bound is 1. `crowds` is their record."""
    ratios = [0.0]
    if signals.split is not None:
        ratios.append(signals.split.clarity / CLEAR_SPLIT)
    if signals.positions is not None:
        ratios.append(float(signals.positions.max()) / CLEAR_POSITION)
    if crowds is not None:
        highest = crowds.topk(2).values
        ratios.append(float(highest[0] - highest[1]) / CROWD_LEAD)
    return max(ratios)


def find_split(evidence: Evidence) -> Charge | None:
    """Find the group that moves together and undoes the model most clearly, in any view, without charging it yet.

    A backdoor only works if the infected updates add up, so they share a direction that others lack. The clarity is the
    separation of the two groups plus the rank of the suspects' alignment.
    """
    if len(evidence) < MIN_SPLIT_ROWS:
        return None
    best: Charge | None = None
    for view, likeness in evidence.directions.items():
        for axis in find_axes(likeness):
            upper, separation = cut_in_two(axis)
            for suspects in (upper, ~upper):
                if not may_be_infected(suspects):
                    continue
                count = int(suspects.sum())
                clarity = separation + rank_alignment(evidence, suspects)
                if best is None or clarity > best.clarity:
                    words = f"moves with {count - 1} others in {view}, separation {separation:.1f}"
                    best = Charge("split", suspects, clarity, words, CLEAR_SPLIT)
    return best


def find_axes(likeness: Tensor) -> Tensor:
    """Return the (k, n) coordinates of the rows along the directions in which they differ most."""
    vectors: Tensor = torch.linalg.eigh((likeness + likeness.T) / 2).eigenvectors
    return vectors.flip(1)[:, :EIGENVECTORS].T


def rank_alignment(evidence: Evidence, suspects: Tensor) -> float:
    """Measure how much more a group undoes the model than the others do; 0 if that is unknown."""
    return 0.0 if evidence.alignment is None else rank_group(evidence.alignment, suspects)


def charge_split(evidence: Evidence, split: Charge | None) -> Charge | None:
    """Charge a split that is clear by itself, or less clear but in the direction of earlier rounds."""
    if split is None:
        return None
    if split.clarity >= CLEAR_SPLIT:
        return split
    separation = split.clarity - rank_alignment(evidence, split.suspects)
    if separation >= LONE_SEPARATION:
        return replace(split, clarity=separation, bound=LONE_SEPARATION)
    repeated = split.clarity >= REPEATED_SPLIT and agrees_with_earlier(evidence, split.suspects)
    return replace(split, bound=REPEATED_SPLIT) if repeated else None


def agrees_with_earlier(evidence: Evidence, suspects: Tensor) -> bool:
    """Whether a group points in the same direction as the groups of earlier rounds."""
    return rank_agreement(evidence, suspects) >= MIN_AGREEMENT


def rank_agreement(evidence: Evidence, suspects: Tensor) -> float:
    """Measure how much more a group points in the direction of earlier suspects than the others; 0 without any."""
    return rank_group(point_back(evidence), suspects) if evidence.recalled_directions else 0.0


def point_back(evidence: Evidence) -> Tensor:
    """Return how far each of the (n,) rows points in the direction of earlier suspects, over all hidden layers."""
    return torch.stack([standardise(each) for each in evidence.recalled_directions.values()]).sum(0)


def charge_recalled(evidence: Evidence) -> Charge | None:
    """Charge those who point in the direction of earlier suspects, if they stand apart and undo the model."""
    if len(evidence) < MIN_SPLIT_ROWS or not evidence.recalled_directions:
        return None
    suspects, separation = cut_in_two(point_back(evidence))
    clarity = separation + rank_alignment(evidence, suspects)
    if clarity < RECALLED_CLARITY or not 1 <= suspects.sum() <= len(evidence) / 2:
        return None
    words = f"points as those accused before, separation {separation:.1f}"
    return Charge("recalled", suspects, clarity, words, RECALLED_CLARITY)


def measure_crowds(evidence: Evidence) -> Tensor | None:
    """Return how much the clients that raise each of the (classes,) look like attackers.

    It adds three traces: how many clients raise the class, how little they agree on the features that raise it, and how
    far they undo the model. Honest clients with a class that the model does not know yet are as many and undo as much,
    but they agree: they all train on the same class. Attackers each train on classes of their own, with one label.
    """
    if evidence.leans is None or evidence.looks is None:
        return None
    leaning, rows = find_leaning(evidence.leans), len(evidence)
    counts = leaning.sum(0).double()
    share = (counts.mean() / rows).clamp(1 / rows, 1 - 1 / rows)
    excess = (counts - counts.mean()) / (rows * share * (1 - share)).sqrt()
    crowds = excess.clamp(-MAX_EXCESS, MAX_EXCESS) + rank_disagreement(evidence.looks).clamp(-MAX_RANK, MAX_RANK)
    if evidence.alignment is None:
        return crowds
    ranks = rank_groups(evidence.alignment, leaning.T)
    return crowds + ALIGNMENT_WEIGHT * ranks.where(counts >= 3, 0).clamp(-MAX_EXCESS, MAX_EXCESS)


def rank_disagreement(looks: Tensor) -> Tensor:
    """Return how little those who raise each of the (classes,) agree on its look, ranked among all who raise any."""
    known = ~looks.isnan()
    numbers, sums = known.nonzero()[:, 1], torch.zeros(looks.shape[1], dtype=torch.float64)
    sums.index_add_(0, numbers, rank_values(-looks[known]))
    return standardise_ranks(sums, known.sum(0).double(), len(numbers))


def update_record(known: Tensor | None, measured: Tensor) -> Tensor:
    """Return the record of crowds or positions after a round; it starts at zero, so the first rounds count less."""
    before = torch.zeros_like(measured) if known is None else known
    return RECORD_KEPT * before + (1 - RECORD_KEPT) * measured


def charge_crowd(evidence: Evidence, measured: Tensor | None, crowds: Tensor | None, accused: bool) -> Charge | None:
    """Charge those who lean to the class that leads over the rounds and is suspect in this one too.

    Poisoned samples all carry one label, so infected clients lean to one class in every round in which they attack. If
    somebody was `accused` before, a smaller lead is enough for a crowd that points in the same direction.
    """
    if crowds is None or measured is None or evidence.leans is None or len(evidence) < MIN_SPLIT_ROWS:
        return None
    highest = crowds.topk(2)
    lead, target = float(highest.values[0] - highest.values[1]), int(highest.indices[0])
    suspects = drop_fitting(evidence, find_leaning(evidence.leans)[:, target], target)
    repeated = accused and lead >= REPEATED_CROWD and agrees_with_earlier(evidence, suspects)
    if (
        not (lead >= CROWD_LEAD or repeated)
        or measured[target] < CROWD_NOW
        or not 3 <= suspects.sum() <= MAX_CHARGED_SHARE * len(evidence)
    ):
        return None
    words = f"leans to class {target} with {int(suspects.sum()) - 1} others"
    return Charge("crowd", suspects, lead, words, CROWD_LEAD if lead >= CROWD_LEAD else REPEATED_CROWD)


def weigh_by_crowds(evidence: Evidence, crowds: Tensor | None, round: int, accused: bool) -> Tensor:
    """Return (n,) weights for a round without a charge, lower for those who lean to a suspect class.

    They keep the model from learning a backdoor before the records are clear, in the first rounds, and from learning it
    in a round in which attackers who were `accused` before escape every ballot.
    """
    if crowds is None or evidence.leans is None or (round > CAUTIOUS_ROUNDS and not accused):
        return torch.ones(len(evidence), dtype=torch.float64)
    suspicion = (crowds / (1 - RECORD_KEPT**round)).clamp(min=0)  # corrects that the record starts at zero
    shares = evidence.leans.square().where(find_leaning(evidence.leans), 0)
    return (1 + shares @ suspicion) ** -CAUTION


def weigh_by_positions(evidence: Evidence, measured: Tensor | None, positions: Tensor | None, round: int) -> Tensor:
    """Return (n,) weights for a round without a charge, lower for those who rewire a position that leads.

    They slow a backdoor down until the record of positions is clear enough for a charge. The largest record in clean
    rounds was 0.6, which leaves a quarter of the weight.
    """
    equal = torch.ones(len(evidence), dtype=torch.float64)
    if positions is None or measured is None or evidence.positions is None or not (leading := measured > 0).any():
        return equal
    groups, _ = split_positions(evidence.positions[leading])  # (n, leading)
    suspicion = positions[leading] / (1 - RECORD_KEPT**round)  # corrects that the record starts at zero
    return (1 + (groups * suspicion).amax(1)) ** -CAUTION


def drop_fitting(evidence: Evidence, leaning: Tensor, target: int) -> Tensor:
    """Return an (n,) bool mask of those who lean to a class, without those who raise it on the model's own features."""
    if evidence.fits is None or leaning.sum() < 2:
        return leaning
    upper, separation = cut_in_two(evidence.fits[leaning, target])
    misfits = leaning.clone()
    misfits[leaning.nonzero()[upper, 0]] = False
    return misfits if separation >= CLEAR_FIT and misfits.sum() > leaning.sum() / 2 else leaning


def measure_positions(evidence: Evidence) -> Tensor | None:
    """Return how far each of the (positions,) of the image leads over all but the few at which a trigger can be.

    At each position, the rows are split along their main direction there. The split counts as much as both its
    separation and the difference in energy between its groups allow: a trigger rewires its position more, and in one
    way. Clients that share a label are separated too, but at many positions, so that none of them leads.
    """
    if evidence.positions is None:
        return None
    groups, separations = split_positions(evidence.positions)
    gaps = separate_groups(evidence.inputs[POSITIONS], groups)
    plausible = torch.tensor([may_be_infected(group) for group in groups.T])
    strengths = torch.minimum(separations, gaps).clamp(min=0).where(plausible, 0)
    ranked = strengths.sort(descending=True).values
    return (strengths - ranked[TRIGGER_POSITIONS]).clamp(min=0)


def split_positions(products: Tensor) -> tuple[Tensor, Tensor]:
    """Cut the rows in two along their main direction at each of k positions.

    Return the (n, k) smaller groups and the (k,) separations.
    """
    axes: Tensor = torch.linalg.eigh(products).eigenvectors[:, :, -1].T  # (n, k)
    upper, separations = cut_columns(axes)
    return torch.where(upper.sum(0) > len(upper) / 2, ~upper, upper), separations


def may_be_infected(group: Tensor) -> bool:
    """Whether a group is neither a majority nor so small that it may be chance."""
    return max(3, len(group) / 10) <= int(group.sum()) <= len(group) / 2


def charge_position(
    evidence: Evidence, measured: Tensor | None, positions: Tensor | None, accused: bool
) -> Charge | None:
    """Charge those who rewire one position of the image in the same way, if it is clear now or over several rounds.

    A trigger has the same position in every image; objects do not, so the labels that honest clients share separate
    them at many positions. If somebody was `accused` before, a group that is clear over several rounds only must point
    in the same direction: attackers keep their backdoor.
    """
    if positions is None or measured is None or evidence.positions is None or len(evidence) < MIN_SPLIT_ROWS:
        return None
    now, usual = int(measured.argmax()), int(positions.argmax())
    if measured[now] >= CLEAR_POSITION:
        return describe_position(evidence.positions, now, float(measured[now]), CLEAR_POSITION)
    if positions[usual] < REPEATED_POSITION or measured[usual] < POSITION_NOW:
        return None
    charge = describe_position(evidence.positions, usual, float(positions[usual]), REPEATED_POSITION)
    return None if accused and not agrees_with_earlier(evidence, charge.suspects) else charge


def describe_position(products: Tensor, position: int, clarity: float, bound: float) -> Charge:
    """Build the charge against those who rewire a position."""
    groups, separations = split_positions(products[position : position + 1])
    others, separation = int(groups.sum()) - 1, float(separations)
    words = f"rewires position {position} with {others} others, separation {separation:.1f}"
    return Charge("position", groups[:, 0], clarity, words, bound)


def charge_reputation(evidence: Evidence, traits: Tensor) -> Charge | None:
    """Charge clients that were accused in most of their recent rounds.

    It bridges rounds in which no ballot is clear. A bad reputation fades with every round, and improves with every
    charge against others.
    """
    accused, judged = traits[:, 2], traits[:, 3]
    suspects = (accused >= REPUTATION) & (accused >= MIN_ACCUSED_SHARE * judged)
    if len(evidence) < MIN_SPLIT_ROWS or not 1 <= suspects.sum() <= len(evidence) / 2:
        return None
    words = "was accused in most of its recent rounds"
    return Charge("reputation", suspects, float(accused.max()), words, REPUTATION)
