"""Snowball-plus: ballots on the traces that a backdoor cannot do without, judged together and remembered.

Ours. A backdoor that works must add up: infected updates share a direction, carry one label, rewire the same inputs and
undo what the model knows. Each trace has a ballot that may charge a group. A charge is refined by all traces together,
and what the suspects had in common is remembered. Nobody is accused without a charge. Whoever is not accused is
averaged, no update longer than the median one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.history import MAX_REMEMBERED_CLIENTS, check_bounds
from snowball.defenses.ops import compute_clip_factors, compute_medians, elect_everyone, sort_rows
from snowball.defenses.snowball_plus.ballots import (
    MAX_CHARGED_SHARE,
    MIN_SPLIT_ROWS,
    Charge,
    Signals,
    charge_crowd,
    charge_position,
    charge_recalled,
    charge_reputation,
    charge_split,
    charge_strangers,
    measure_signals,
    measure_strangeness,
    update_record,
    weigh_by_crowds,
)
from snowball.defenses.snowball_plus.evidence import Evidence, gather_evidence
from snowball.defenses.snowball_plus.joint import Judgement, judge_together
from snowball.defenses.snowball_plus.memory import (
    Memory,
    read_memory,
    read_traits,
    recall_suspects,
    record_judgement,
    update_clients,
    write_memory,
)
from snowball.errors import SettingError
from snowball.updates import Updates

MIN_ROWS = 4
"""Updates below which nobody can be told from the others."""

INDEPENDENT = ("split", "position", "crowd")
"""Ballots whose charges are joined: none of them needs to know earlier suspects."""


Ballot = Literal["split", "position", "crowd", "reputation", "recalled", "strangers"]
"""The names of the ballots."""


@dataclass(frozen=True)
class SnowballPlus:
    """Average all updates but those that the traces of a backdoor accuse.

    Attributes:
        without: ballots that are not held, to find out what each is worth.
        remember: clients of which deviations are kept, those last seen.
    """

    without: tuple[Ballot, ...] = ()
    remember: int = MAX_REMEMBERED_CLIENTS

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bounds(None, self.remember)
        for ballot in self.without:
            if ballot not in get_args(Ballot):
                raise SettingError(f"without must name ballots ({', '.join(get_args(Ballot))}), got {ballot!r}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Hold the ballots."""
        memory = read_memory(context, updates.layout)
        if len(updates) < MIN_ROWS:
            return Verdict(
                average_clipped(updates, elect_everyone(updates)), elect_everyone(updates), {}, context.state
            )
        start = perf_counter()
        evidence = gather_evidence(updates, context.base, memory.recalled)
        signals = measure_signals(evidence)
        memory = update_records(memory, evidence, signals, updates, context)
        charges = self._hold_ballots(evidence, memory, signals, read_traits(memory.clients, updates.clients))
        judgement = judge_charges(evidence, charges)
        memory = learn_suspects(memory, updates, evidence, judgement, signals.split)
        accused = judgement.suspects if judgement else join_suspects(charges, len(updates))
        facts = describe_round(charges, judgement) | {"seconds.ballots": perf_counter() - start}
        if charges:
            delta = average_clipped(updates, ~accused)
        elif len(updates) < MIN_SPLIT_ROWS:
            delta = find_medians(updates)
        else:
            record = None if "crowd" in self.without else memory.crowds
            weights = weigh_by_crowds(evidence, record, context.round)
            delta = average_clipped(updates, ~accused, weights)
        return Verdict(delta, ~accused, facts, write_memory(memory, context, self.remember))

    def _hold_ballots(self, evidence: Evidence, memory: Memory, signals: Signals, traits: Tensor) -> list[Charge]:
        """All charges that rest on this round; where there are none, the first of those that rest on earlier ones."""
        found: dict[Ballot, Charge | None] = {
            "split": charge_split(evidence, signals.split),
            "position": charge_position(evidence, signals.positions, memory.positions),
            "crowd": charge_crowd(evidence, signals.crowds, memory.crowds),
            "reputation": charge_reputation(evidence, traits),
            "recalled": charge_recalled(evidence) if memory.charges else None,
            "strangers": charge_strangers(evidence, traits),
        }
        held = [charge for name, charge in found.items() if charge and name not in self.without]
        return [charge for charge in held if charge.ballot in INDEPENDENT] or held[:1]


def update_records(memory: Memory, evidence: Evidence, signals: Signals, updates: Updates, context: Context) -> Memory:
    """The memory with what this round says of crowds, positions and clients, before anybody is accused."""
    strangeness = measure_strangeness(evidence)
    return replace(
        memory,
        crowds=None if signals.crowds is None else update_record(memory.crowds, signals.crowds),
        positions=None if signals.positions is None else update_record(memory.positions, signals.positions),
        clients=update_clients(memory.clients, updates.clients, strangeness, context.round),
    )


def judge_charges(evidence: Evidence, charges: Sequence[Charge]) -> Judgement | None:
    """Judge the charged by all traces together; not a reputation, which stands if traces are unclear."""
    if not charges or charges[0].ballot == "reputation":
        return None
    return judge_together(evidence, join_suspects(charges, len(evidence)))


def join_suspects(charges: Sequence[Charge], rows: int) -> Tensor:
    """(n,) bool, all whom any ballot charges; if they are too many to be the infected, those of the first."""
    if not charges:
        return torch.zeros(rows, dtype=torch.bool)
    joined = torch.stack([charge.suspects for charge in charges]).any(0)
    return charges[0].suspects if joined.double().mean() > MAX_CHARGED_SHARE else joined


def learn_suspects(
    memory: Memory, updates: Updates, evidence: Evidence, judgement: Judgement | None, split: Charge | None
) -> Memory:
    """The memory with what this round's suspects have in common: the accused, or the clearest split while nobody is.

    Of the accused it is the more suspicious half, which holds fewer honest ones.
    """
    if judgement:
        worst = judgement.scores >= judgement.scores[judgement.suspects].quantile(0.5)
        recalled = recall_suspects(memory.recalled, updates, evidence, judgement.suspects & worst)
        clients = record_judgement(memory.clients, updates.clients, judgement.suspects)
        return replace(memory, recalled=recalled, clients=clients, charges=memory.charges + 1)
    if split:
        return replace(memory, recalled=recall_suspects(memory.recalled, updates, evidence, split.suspects))
    return memory


def describe_round(charges: Sequence[Charge], judgement: Judgement | None) -> dict[str, Tensor | float | str]:
    """The evidence as facts of a verdict."""
    facts: dict[str, Tensor | float | str] = {f"clarity.{charge.ballot}": charge.clarity for charge in charges}
    if charges:
        facts["charge"] = "; ".join(charge.words for charge in charges)
    if judgement:
        facts["suspicion"] = judgement.scores
        facts["separation"] = judgement.separation
    return facts


def average_clipped(updates: Updates, elected: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of the elected, each as heavy as its examples times its weight, none longer than their median length."""
    lengths = updates.squared_norms.sqrt()
    factors = compute_clip_factors(lengths, float(lengths[elected].quantile(0.5)))
    shares = updates.examples.double() * elected * (1 if weights is None else weights)
    return updates.combine(updates.normalise(shares) * factors)


def find_medians(updates: Updates) -> Tensor:
    """The median of each column: of few updates, each would be a large share of a mean."""
    return updates.reduce_columns(lambda columns: compute_medians(sort_rows(columns)))
