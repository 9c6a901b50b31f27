"""Few sites: with fewer than 16 updates, groups may be chance, so each client is watched over the rounds.

A client of eight is a large part of every average, and its size may be anything. So the length of an update is compared
with the length that is usual for its number of examples, both to find strangers and to limit what it contributes.
"""

import math

import torch
from torch import Tensor

from snowball.defenses.medians import find_column_medians
from snowball.defenses.snowball_plus.ballots import (
    CLIENT_KEPT,
    MIN_SPLIT_ROWS,
    TRIGGER_POSITIONS,
    Charge,
    point_back,
)
from snowball.defenses.snowball_plus.evidence import POSITIONS, SMALLEST_LENGTH, Evidence
from snowball.defenses.snowball_plus.statistics import standardise_robustly
from snowball.updates import Updates

STRANGENESS = 6.0
"""Mean sum of deviations from which a client is a stranger: the largest in clean rounds was 5.4."""

FEW_SITES, STRANGENESS_OF_FEW = 8, 7.0
"""With fewer updates than this, the sum must be larger, and how large: the largest in clean rounds was 6.5."""

TRUSTED_STRANGENESS = 3.0
"""Mean sum of deviations up to which a client has its full weight; from there it falls to zero at the bound."""

FIRST_ROUND_FACTOR = 1.5
"""How much stranger a client must be in its first round, which may be chance, to be charged."""

MAX_DEVIATION = 6.0
"""A client's deviations are capped here."""

MAX_UNTRACED = 2.5
"""Deviations count at most this much in a round in which a client shows no trace of a backdoor: it stays trusted."""

TRIGGER_LEAD = 0.1
"""How much more of its energy, as a square root, a client puts into one position than into the fourth, beyond the
others, from which that is a trace: attackers had 0.11 to 0.39 in the rounds before they were charged, and honest
clients mostly below 0.08."""

CONTRADICTION = 0.1
"""Cosine with the model's weights of the class that a client raises most, from whose negative the client contradicts
the model: attackers had -0.1 to -0.4 once the model knew the class, and honest holders of a class it lacks about 0."""

OVERLONG = 4.0
"""How many times as long as is usual for its size an update is that no class explains: scaled ones had 5 to 9 in their
first round."""

MIN_SIZE_RATIO = 1.05
"""Least ratio of two numbers of examples from which the effect of sizes can be seen."""

LENGTH_SLACK = 1.5
"""How much longer an update may be than is usual for its number of examples, before it is clipped."""


def is_small(rows: int) -> bool:
    """Whether a cohort is so small that its clients are watched one by one."""
    return rows < MIN_SPLIT_ROWS


def measure_strangeness(evidence: Evidence, sizes: Tensor) -> Tensor:
    """Return the (n,) sums of each row's upward deviations: in length, in rewired inputs, and in undoing the model.

    `sizes` are the (n,) logarithms of example counts. If there were suspects before, pointing in their direction counts
    too.
    """
    lengths = evidence.log_lengths
    traits = [remove_size_effect(lengths, sizes) if is_small(len(evidence)) else lengths, measure_rewiring(evidence)]
    traits += [] if evidence.alignment is None else [evidence.alignment]
    traits += [point_back(evidence)] if evidence.recalled_directions else []
    return torch.stack([standardise_robustly(each).clamp(-MAX_DEVIATION, MAX_DEVIATION) for each in traits]).sum(0)


def measure_rewiring(evidence: Evidence) -> Tensor:
    """Return how far the most rewired position of each of the (n,) rows exceeds the median over rows.

    Without positions, return how far each row's shares of energy over the inputs are from the mean.
    """
    if POSITIONS in evidence.inputs:
        shares = evidence.inputs[POSITIONS]
        return (shares - shares.quantile(0.5, dim=0)).amax(1)
    shares = list(evidence.inputs.values())[-1]
    apart: Tensor = (shares - shares.mean(0)).norm(dim=1)
    return apart


def limit_untraced(strangeness: Tensor, evidence: Evidence, traits: Tensor, sizes: Tensor) -> Tensor:
    """Return the (n,) sums of deviations as far as they are evidence of a backdoor.

    A client that alone holds a class deviates as attackers do, in every round in which the model lacks the class. So
    without a trace of a backdoor, deviations leave a client trusted. The model lacks what a client holds that was
    accused lately, be it a backdoor or a class; its deviations then confirm its record and do not add to it. In a
    client's first round, deviations that suffice for a charge count all the same if the update is overlong: one that is
    scaled must not be averaged until the model is known well enough for a trace.

    Args:
        traits: (n, traits) of the clients before this round.
        sizes: (n,) logarithms of example counts.
    """
    accused = traits[:, 2] >= 1
    most = recall_strangeness(traits).where(accused, 0).clamp(min=MAX_UNTRACED)
    blatant = (traits[:, 1] == 0) & (strangeness >= FIRST_ROUND_FACTOR * find_bound(len(traits)))
    blatant &= find_overlong(evidence, sizes)
    return strangeness.where(find_traced(evidence) | blatant, strangeness.minimum(most))


def find_overlong(evidence: Evidence, sizes: Tensor) -> Tensor:
    """Return an (n,) bool mask of updates that are far longer than is usual for their number of examples."""
    lengths = remove_size_effect(evidence.log_lengths, sizes)
    return lengths - lengths.quantile(0.5) >= math.log(OVERLONG)


def find_traced(evidence: Evidence) -> Tensor:
    """Return an (n,) bool mask of clients with a trace that a class which the model lacks does not explain.

    They rewire a trigger's position or contradict the model. Without positions, an attacker who sends an honest last
    layer would show neither, so nobody is without a trace.
    """
    if POSITIONS not in evidence.inputs:
        return torch.ones(len(evidence), dtype=torch.bool)
    return (measure_leads(evidence.inputs[POSITIONS]) >= TRIGGER_LEAD) | find_contradicting(evidence)


def measure_leads(shares: Tensor) -> Tensor:
    """Return how far the most rewired position of each of the (n, positions) rows leads over all that a trigger covers.

    Objects are not always at the same position, so the classes of an honest client rewire many.
    """
    ranked = (shares - shares.quantile(0.5, dim=0)).topk(TRIGGER_POSITIONS + 1, dim=1).values
    return ranked[:, 0] - ranked[:, TRIGGER_POSITIONS]


def find_contradicting(evidence: Evidence) -> Tensor:
    """Return an (n,) bool mask of clients that raise a class on features by which the model knows it is another one.

    Nobody contradicts a model that does not know the classes of most clients yet.
    """
    if evidence.leans is None or evidence.fits is None:
        return torch.zeros(len(evidence), dtype=torch.bool)
    fits = evidence.fits.gather(1, evidence.leans.argmax(1, keepdim=True))[:, 0]
    return (fits <= -CONTRADICTION) & (fits.quantile(0.5) >= CONTRADICTION)


def charge_strangers(evidence: Evidence, traits: Tensor) -> Charge | None:
    """Charge clients that deviate in several ways over the rounds: the ballot for few sites, one of which attacks."""
    suspects = find_strangers(traits)
    if not is_small(len(evidence)) or not 1 <= suspects.sum() <= len(evidence) / 2:
        return None
    words = "deviates in length, direction and rewired inputs"
    return Charge("strangers", suspects, float(recall_strangeness(traits).max()), words, find_bound(len(evidence)))


def find_strangers(traits: Tensor) -> Tensor:
    """Return an (n,) bool mask of the clients that are strange enough to be charged."""
    first_round = traits[:, 1] <= 1
    return recall_strangeness(traits) >= find_bound(len(traits)) * torch.where(first_round, FIRST_ROUND_FACTOR, 1.0)


def clear_trusted(suspects: Tensor, charged: Tensor, traits: Tensor) -> Tensor:
    """Return the (n,) suspects without those who have their full weight, or the charged if nobody else is left.

    All traces together may cut a few rows in two by chance.
    """
    remaining = suspects & (recall_strangeness(traits) > TRUSTED_STRANGENESS)
    return remaining if remaining.any() else charged


def recall_strangeness(traits: Tensor) -> Tensor:
    """Return the (n,) mean strangeness of clients over their rounds, in which recent ones count more; 0 without any."""
    return traits[:, 0] / traits[:, 1].where(traits[:, 1] > 0, 1)


def find_bound(rows: int) -> float:
    """Return the strangeness from which a client is a stranger."""
    return STRANGENESS if rows >= FEW_SITES else STRANGENESS_OF_FEW


def remove_size_effect(values: Tensor, sizes: Tensor) -> Tensor:
    """Return (n,) values minus their linear dependence on the (n,) logarithms of example counts.

    The slope is the median over all pairs of clients (Theil and Sen), so a few attackers cannot set it; it is neither
    negative nor above 1, since more examples make more steps, and lengths grow at most with their number.
    """
    first, second = torch.triu_indices(len(values), len(values), 1)
    steps, apart = values[second] - values[first], sizes[second] - sizes[first]
    told_apart = apart.abs() >= torch.tensor(MIN_SIZE_RATIO).log()
    if not told_apart.any():
        return values
    slope = (steps[told_apart] / apart[told_apart]).quantile(0.5).clamp(0, 1)
    return values - slope * sizes


def compute_length_factors(lengths: Tensor, examples: Tensor, elected: Tensor) -> Tensor:
    """Return the (n,) factors that clip updates to the length that is usual among the elected of their size."""
    logarithms, sizes = lengths.clamp(min=SMALLEST_LENGTH).log(), examples.double().log()
    excess = torch.full_like(logarithms, 0)
    about = remove_size_effect(logarithms[elected], sizes[elected])
    excess[elected] = about - about.quantile(0.5)
    return (-(excess - torch.tensor(LENGTH_SLACK).log())).exp().clamp(max=1)


def weigh_clients(traits: Tensor) -> Tensor:
    """Return the (n,) weights of clients: lower for those who are new, and for those who are nearly strangers."""
    experience = (1 - CLIENT_KEPT) * traits[:, 1]
    bound = find_bound(len(traits))
    trust = (bound - recall_strangeness(traits)) / (bound - TRUSTED_STRANGENESS)
    return experience * trust.clamp(0, 1)


def is_doubtful(updates: Updates, traits: Tensor) -> bool:
    """Whether a client that would have more than an equal share of the mean is not fully trusted."""
    influential = updates.normalise(updates.examples) > 1 / len(updates)
    return bool((influential & (recall_strangeness(traits) > TRUSTED_STRANGENESS)).any())


def average_few(updates: Updates, elected: Tensor, traits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
    """Average the elected by examples and trust, none longer than is usual, and return the shares; medians without any.

    Nobody is trusted if all who are not accused are nearly strangers.
    """
    weights = weigh_clients(traits) * elected
    if not weights.any():
        return find_medians(updates)
    shares = updates.normalise(updates.examples * weights)
    return updates.combine(shares * compute_length_factors(lengths, updates.examples, elected)), shares


def find_medians(updates: Updates) -> tuple[Tensor, None]:
    """Return the median of each column, in which nobody has a share: each of a few would be a large part of a mean."""
    return find_column_medians(updates), None
