"""Snowball-plus: ballots on the traces that a backdoor cannot do without, judged together and remembered.

Ours. A backdoor that works must add up: infected updates share a direction, carry one label, rewire the same inputs and
undo what the model knows. Each trace has a ballot that may charge a group. A charge is refined by all traces together,
and what the suspects had in common is remembered. Nobody is accused without a charge. Whoever is not accused is
averaged, no update longer than the median one.
"""

from dataclasses import dataclass, replace
from math import nan
from time import perf_counter

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.history import MAX_REMEMBERED_CLIENTS, check_bounds
from snowball.defenses.ops import ascending, clip_factors, everyone, middle
from snowball.defenses.snowball_plus.ballots import (
    MIN_SPLIT_ROWS,
    Charge,
    charge_crowd,
    charge_fullest_class,
    charge_recalled,
    charge_split,
    charge_strangers,
    find_split,
    measure_crowds,
    measure_strangeness,
    remember_crowds,
)
from snowball.defenses.snowball_plus.evidence import Evidence, gather_evidence
from snowball.defenses.snowball_plus.joint import Judgement, judge_together
from snowball.defenses.snowball_plus.memory import Memory, read_memory, recall_suspects, update_clients, write_memory
from snowball.updates import Updates

MIN_ROWS = 4
"""Updates below which nobody can be told from the others."""

FULLEST_CLASS_ROUNDS = 8
"""First rounds in which `suspect_crowds` leaves out those who lean to the class that most lean to."""


@dataclass(frozen=True)
class SnowballPlus:
    """Average all updates but those that the traces of a backdoor accuse.

    Attributes:
        suspect_crowds: also accuse those who lean to the class that leads round after round, and in the first rounds
            leave out those who lean to the class that most lean to. Under strong label skew a backdoor settles before
            any other trace is clear, and this can keep it out. But a class that is left out is soon missed, and honest
            clients who hold it then look like attackers: where nobody attacks, they are left out.
        remember: clients of which deviations are kept, those last seen.
    """

    suspect_crowds: bool = False
    remember: int = MAX_REMEMBERED_CLIENTS

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bounds(None, self.remember)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Hold the ballots."""
        before = memory = read_memory(context, updates.layout)
        if len(updates) < MIN_ROWS:
            return Verdict(average_clipped(updates, everyone(updates)), everyone(updates), {}, context.state)
        start = perf_counter()
        evidence = gather_evidence(updates, context.base, memory.recalled)
        memory, strangeness = self._update_records(memory, evidence, updates, context)
        split = find_split(evidence)
        charge = self._choose_charge(evidence, before, memory, split, strangeness)
        judgement = judge_together(evidence, charge.suspects) if charge else None
        memory = learn_suspects(memory, updates, evidence, judgement, split)
        if charge is None and self.suspect_crowds and context.round <= FULLEST_CLASS_ROUNDS:
            charge = charge_fullest_class(evidence, context.round)
        elected = ~find_accused(updates, charge, judgement)
        facts = describe_round(updates, charge, judgement) | {"seconds.ballots": perf_counter() - start}
        delta = average_clipped(updates, elected) if charge else average_unaccused(updates)
        return Verdict(delta, elected, facts, write_memory(memory, context, self.remember))

    def _update_records(
        self, memory: Memory, evidence: Evidence, updates: Updates, context: Context
    ) -> tuple[Memory, Tensor]:
        """The memory with what this round says of crowds and clients, and (n,) how strange each client has been."""
        names = [updates.clients[row] for row in updates.by_client.tolist()]
        clients, strangeness = update_clients(memory.clients, names, measure_strangeness(evidence), context.round)
        measured = measure_crowds(evidence)
        crowds = None if measured is None else remember_crowds(memory.crowds, measured)
        return replace(memory, crowds=crowds, clients=clients), strangeness

    def _choose_charge(
        self, evidence: Evidence, before: Memory, memory: Memory, split: Charge | None, strangeness: Tensor
    ) -> Charge | None:
        """The first ballot that charges anybody, those that are seldom wrong before the others."""
        return (
            charge_split(evidence, split)
            or (charge_crowd(evidence, before.crowds, memory.crowds) if self.suspect_crowds else None)
            or (charge_recalled(evidence) if memory.charges else None)
            or charge_strangers(evidence, strangeness)
        )


def find_accused(updates: Updates, charge: Charge | None, judgement: Judgement | None) -> Tensor:
    """(n,) bool, whom a round accuses, in the order of arrival; a charge that nobody judged stands as it is."""
    accused = torch.zeros(len(updates), dtype=torch.bool)
    if charge:
        accused[updates.by_client] = judgement.suspects if judgement else charge.suspects
    return accused


def learn_suspects(
    memory: Memory, updates: Updates, evidence: Evidence, judgement: Judgement | None, split: Charge | None
) -> Memory:
    """The memory with what this round's suspects have in common: the accused, or the clearest split while nobody is.

    Of the accused it is the more suspicious half, which holds fewer honest ones.
    """
    if judgement:
        worst = judgement.scores >= judgement.scores[judgement.suspects].quantile(0.5)
        recalled = recall_suspects(memory.recalled, updates, evidence, judgement.suspects & worst)
        return replace(memory, recalled=recalled, charges=memory.charges + 1)
    if split:
        return replace(memory, recalled=recall_suspects(memory.recalled, updates, evidence, split.suspects))
    return memory


def describe_round(
    updates: Updates, charge: Charge | None, judgement: Judgement | None
) -> dict[str, Tensor | float | str]:
    """The evidence as facts of a verdict."""
    facts: dict[str, Tensor | float | str] = {}
    if charge:
        facts |= {"charge": charge.words, f"clarity.{charge.ballot}": charge.clarity}
    if judgement:
        suspicion = torch.full((len(updates),), nan, dtype=torch.float64)
        suspicion[updates.by_client] = judgement.scores
        facts |= {"suspicion": suspicion, "separation": judgement.separation}
    return facts


def average_clipped(updates: Updates, elected: Tensor) -> Tensor:
    """The mean of the elected, each as heavy as its examples, those longer than their median length shortened to it."""
    lengths = updates.squared_norms.sqrt()
    factors = clip_factors(lengths, float(lengths[elected].quantile(0.5)))
    shares = updates.examples.double() * elected
    shares = shares / shares.max()  # first, so that no sum of huge counts overflows
    return updates.combine(shares / shares[updates.order].sum() * factors)


def average_unaccused(updates: Updates) -> Tensor:
    """The average while nobody is accused: of few updates the median of each column, since one is a large share."""
    if len(updates) >= MIN_SPLIT_ROWS:
        return average_clipped(updates, everyone(updates))
    return updates.by_column(lambda columns: middle(ascending(columns)))
