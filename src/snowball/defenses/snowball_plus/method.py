"""Snowball-plus: ballots on the traces that every backdoor leaves, judged together and remembered.

This defense is our own. A backdoor only works if the infected updates add up: they share a direction, carry one label,
rewire the same inputs and undo what the model knows. Each trace has a ballot that may charge a group. All traces
together refine a charge, and the suspects' common traits are remembered. Nobody is accused without a charge. All
updates that are not accused are averaged, none longer than the median one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict
from snowball.defenses.history import MAX_REMEMBERED_CLIENTS, check_bounds
from snowball.defenses.ops import compute_clip_factors, elect_everyone
from snowball.defenses.snowball_plus.ballots import (
    CAUTIOUS_ROUNDS,
    MAX_CHARGED_SHARE,
    MAX_LEAD,
    Charge,
    Signals,
    charge_crowd,
    charge_position,
    charge_recalled,
    charge_reputation,
    charge_split,
    measure_clarity,
    measure_signals,
    rank_agreement,
    update_record,
    weigh_by_crowds,
    weigh_by_positions,
)
from snowball.defenses.snowball_plus.evidence import Evidence, gather_evidence
from snowball.defenses.snowball_plus.few import (
    average_few,
    charge_strangers,
    clear_trusted,
    find_bound,
    find_medians,
    is_doubtful,
    is_small,
    limit_untraced,
    measure_strangeness,
    recall_strangeness,
)
from snowball.defenses.snowball_plus.joint import Judgement, judge_together
from snowball.defenses.snowball_plus.memory import (
    Memory,
    check_memory,
    read_memory,
    read_traits,
    recall_suspects,
    record_judgement,
    update_clients,
    write_memory,
)
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates

MIN_ROWS = 4
"""With fewer updates, nobody can be told apart from the others."""

MAX_UNCHARGED_CLARITY = 0.99
"""The clarity of a round without a charge stays below the bound of a charge, 1, even if a single signal was above it:
a ballot may have more conditions than one."""

INDEPENDENT = ("split", "position", "crowd")
"""Ballots whose charges are joined: none of them depends on earlier suspects."""


Ballot = Literal["split", "position", "crowd", "reputation", "recalled", "strangers"]
"""The names of the ballots."""


@dataclass(frozen=True)
class SnowballPlus:
    """Average all updates except those that show the traces of a backdoor.

    Attributes:
        without: ballots that are not held, to measure what each contributes.
        remember: the most clients whose traits are kept; those seen last stay.
    """

    min_updates: ClassVar[int] = MIN_ROWS
    fresh_deltas: ClassVar[bool] = True
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
        shares: Tensor | None
        if len(updates) < MIN_ROWS:
            everyone = elect_everyone(updates)
            delta, shares = average_clipped(updates, everyone, updates.examples, updates.squared_norms.sqrt())
            return Verdict(delta, everyone, {"shares": shares}, context.state)
        start = perf_counter()
        evidence = gather_evidence(updates, context.base, memory.recalled)
        signals = measure_signals(evidence)
        memory = update_records(memory, evidence, signals, updates, context)
        traits = read_traits(memory.clients, updates.clients)
        charges = self._hold_ballots(evidence, memory, signals, traits)
        judgement = judge_charges(evidence, charges)
        if judgement and is_small(len(updates)):
            remaining = clear_trusted(judgement.suspects, charges[0].suspects, traits)
            judgement = replace(judgement, suspects=remaining)
        memory = learn_suspects(memory, updates, evidence, judgement, signals.split)
        accused = judgement.suspects if judgement else join_suspects(evidence, charges)
        facts = describe_round(charges, judgement) | {"seconds.ballots": perf_counter() - start}
        if is_small(len(updates)):
            facts |= {"strangeness": recall_strangeness(traits)}
            clarity = float(recall_strangeness(traits).max()) / find_bound(len(updates))
            cautious = not charges and (context.round <= CAUTIOUS_ROUNDS or is_doubtful(updates, traits))
            if cautious:
                delta, shares = find_medians(updates)
            else:
                delta, shares = average_few(updates, ~accused, traits, evidence.lengths)
        else:
            clarity = measure_clarity(signals, memory.crowds)
            record = None if charges or "crowd" in self.without else memory.crowds
            trust = weigh_by_crowds(evidence, record, context.round, memory.charges > 0)
            leads = None if charges or "position" in self.without else memory.positions
            trust = trust * weigh_by_positions(evidence, signals.positions, leads, context.round)
            delta, shares = average_clipped(updates, ~accused, updates.examples * trust, evidence.lengths)
        facts |= {} if shares is None else {"shares": shares}
        facts |= {"clarity": max(1.0, clarity) if charges else min(clarity, MAX_UNCHARGED_CLARITY)}
        return Verdict(delta, ~accused, facts, write_memory(memory, context, self.remember), accused)

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state that is not the memory of such a federation."""
        check_memory(read_memory(Context(round=max(1, round), state=state), layout))

    def _hold_ballots(self, evidence: Evidence, memory: Memory, signals: Signals, traits: Tensor) -> list[Charge]:
        """Return all charges by independent ballots; if there are none, the first charge by another ballot."""
        accused = memory.charges > 0
        found: dict[Ballot, Charge | None] = {
            "split": charge_split(evidence, signals.split),
            "position": charge_position(evidence, signals.positions, memory.positions, accused),
            "crowd": charge_crowd(evidence, signals.crowds, memory.crowds, accused),
            "reputation": charge_reputation(evidence, traits),
            "recalled": charge_recalled(evidence) if accused else None,
            "strangers": charge_strangers(evidence, traits),
        }
        held = [charge for name, charge in found.items() if charge and name not in self.without]
        return [charge for charge in held if charge.ballot in INDEPENDENT] or held[:1]


def update_records(memory: Memory, evidence: Evidence, signals: Signals, updates: Updates, context: Context) -> Memory:
    """Return the memory with this round's crowds, positions and deviations of clients, before anybody is accused."""
    sizes = updates.examples.double().log()
    strangeness = measure_strangeness(evidence, sizes)
    if is_small(len(updates)):
        strangeness = limit_untraced(strangeness, evidence, read_traits(memory.clients, updates.clients), sizes)
    return replace(
        memory,
        crowds=None if signals.crowds is None else update_record(memory.crowds, signals.crowds),
        positions=None
        if signals.positions is None
        else update_record(memory.positions, signals.positions.clamp(max=MAX_LEAD)),
        clients=update_clients(memory.clients, updates.clients, strangeness, context.round),
    )


def judge_charges(evidence: Evidence, charges: Sequence[Charge]) -> Judgement | None:
    """Judge the charged by all traces together; None for a reputation, which stands even if the traces are unclear."""
    if not charges or charges[0].ballot == "reputation":
        return None
    return judge_together(evidence, join_suspects(evidence, charges))


def join_suspects(evidence: Evidence, charges: Sequence[Charge]) -> Tensor:
    """Return an (n,) bool mask of all that any ballot charges.

    If they are too many, they cannot all be infected. Then return those of the charge whose suspects point most in the
    direction of earlier suspects, or of the first charge if there were none.
    """
    if not charges:
        return torch.zeros(len(evidence), dtype=torch.bool)
    joined = torch.stack([charge.suspects for charge in charges]).any(0)
    if joined.double().mean() <= MAX_CHARGED_SHARE:
        return joined
    return max(charges, key=lambda charge: rank_agreement(evidence, charge.suspects)).suspects


def learn_suspects(
    memory: Memory, updates: Updates, evidence: Evidence, judgement: Judgement | None, split: Charge | None
) -> Memory:
    """Return the memory with the common traits of this round's accused, or of the clearest split if nobody is accused.

    Only the more suspicious half of the accused counts, since it holds fewer honest clients.
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
    """Return the charges and the judgement as facts of a verdict."""
    facts: dict[str, Tensor | float | str] = {}
    for charge in charges:
        facts[f"words.{charge.ballot}"] = charge.words
        facts[f"clarity.{charge.ballot}"] = charge.clarity
        facts[f"bound.{charge.ballot}"] = charge.bound
        facts[f"charged.{charge.ballot}"] = charge.suspects.double()
    if charges:
        facts["charge"] = "; ".join(charge.words for charge in charges)
    if judgement:
        facts["suspicion"] = judgement.scores
        facts["separation"] = judgement.separation
    return facts


def average_clipped(updates: Updates, elected: Tensor, weights: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Average the elected with these (n,) weights, none longer than their median length; also return the shares."""
    factors = compute_clip_factors(lengths, float(lengths[elected].quantile(0.5)))
    shares = updates.normalise(weights.double() * elected)
    return updates.combine(shares * factors), shares
