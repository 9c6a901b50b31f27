"""Intersection: average the updates that several defenses all elect.

Qin et al., AAAI 2024, recommend it against attacks that none of the defenses was designed for: an update that one
defense finds suspicious is left out, whatever the others say. If they agree on no update, the first one's election
stands.

Only the elections are combined: a member's other steps (clipping, noise) are not carried out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snowball.defenses.base import (
    Context,
    Defense,
    LocalDefense,
    PredictionDefense,
    State,
    TrustingDefense,
    Verdict,
    check_state,
    explain_schedule,
    find_min_updates,
)
from snowball.defenses.flame import FLAME
from snowball.defenses.history import describe_damage
from snowball.defenses.ops import average_by_examples
from snowball.defenses.snowball import Snowball
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates


@dataclass(frozen=True)
class Intersection:
    """Average the updates that every one of several defenses elects.

    Attributes:
        members: the defenses; the first one decides if they agree on no update.
    """

    members: tuple[Defense, ...] = (Snowball(), FLAME())

    def __post_init__(self) -> None:
        """Refuse members that do more than elect."""
        if len(self.members) < 2:
            raise SettingError(f"an intersection needs at least 2 members, got {len(self.members)}")
        for member in self.members:
            if isinstance(member, LocalDefense | PredictionDefense | TrustingDefense):
                name = type(member).__name__
                raise SettingError(f"{name} trains or predicts beside electing, which an intersection would leave out")

    @property
    def min_updates(self) -> int:
        """The number of updates that every member needs."""
        return max(map(find_min_updates, self.members))

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Let every member elect."""
        states = self._read_members(context.state)
        verdicts = [
            member(updates, replace(context, state=state)) for member, state in zip(self.members, states, strict=True)
        ]
        agreed = torch.stack([verdict.elected for verdict in verdicts]).all(0)
        elected = agreed if agreed.any() else verdicts[0].elected
        facts = {"agreed": int(agreed.sum()), **collect_facts(verdicts)}
        return Verdict(
            average_by_examples(updates, elected), elected, facts, {"members": [verdict.state for verdict in verdicts]}
        )

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Let every member check its own state."""
        for member, own in zip(self.members, self._read_members(state), strict=True):
            check_state(member, own, round, layout)

    def _read_members(self, state: State | None) -> Sequence[State | None]:
        """Return the states of the members; refuse anything but one for each."""
        states = state.get("members") if state else [None] * len(self.members)
        if not isinstance(states, list | tuple) or len(states) != len(self.members):
            raise describe_damage(f"it does not hold the states of {len(self.members)} members")
        for own in states:
            if not isinstance(own, Mapping | None):
                raise describe_damage(f"the state of a member cannot be a {type(own).__name__}")
        return states

    def explain_schedule(self) -> str:
        """Pass on what the first member says that depends on the number of rounds."""
        return next(filter(None, map(explain_schedule, self.members)), "")


def collect_facts(verdicts: Sequence[Verdict]) -> Mapping[str, Tensor | float | str]:
    """Return the facts of all members; each name ends in the member's number."""
    facts: dict[str, Tensor | float | str] = {}
    for number, verdict in enumerate(verdicts, 1):
        facts[f"elected.{number}"] = verdict.elected
        facts |= {f"{name}.{number}": fact for name, fact in verdict.facts.items()}
    return facts
