"""Puts pre-aggregation before any defense, and turns its verdict on mixed rows into one on the clients."""

from dataclasses import dataclass

from snowball.defenses.base import (
    Context,
    Defense,
    State,
    Verdict,
    check_state,
    explain_schedule,
    find_min_updates,
)
from snowball.defenses.bucketing import Bucketing
from snowball.defenses.ideal import Ideal
from snowball.defenses.mixing import Mixing, leave_unmixed
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.updates import Updates

FURTHER_PARTS = ("train", "predict", "trusted_examples", "inspected_examples", "check_client_state")
"""What a defense may have besides judging rounds; mixing does not change it."""


@dataclass(frozen=True)
class Before:
    """Let a defense judge mixed rows in place of the clients' updates.

    Attributes:
        defense: the defense.
        mixings: what happens to the rows first, in this order.
    """

    defense: Defense
    mixings: tuple[Mixing, ...]

    def __post_init__(self) -> None:
        """Take over what else the defense can do; refuse one that would not know the clients."""
        if not self.mixings:
            raise SettingError("before a defense goes at least 1 mixing, such as NNM(), got none")
        if isinstance(self.defense, Ideal) and any(isinstance(mixing, Bucketing) for mixing in self.mixings):
            raise SettingError("Ideal leaves out malicious clients by name, and buckets have no client's name")
        for part in FURTHER_PARTS:
            if hasattr(self.defense, part):  # the protocols in `base` find a defense's parts by their names
                object.__setattr__(self, part, getattr(self.defense, part))

    @property
    def members(self) -> tuple[Defense]:
        """The defense, where an intersection has its members."""
        return (self.defense,)

    @property
    def min_updates(self) -> int:
        """The number of updates that are mixed into as many rows as the defense needs."""
        needed = find_min_updates(self.defense)
        for mixing in reversed(self.mixings):
            needed = mixing.count_updates(needed)
        return needed

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Mix, let the defense judge, and say what that means for the clients."""
        mixed = leave_unmixed(updates)
        for mixing in self.mixings:
            mixed = mixed.apply(mixing, context)
        return mixed.judge_clients(self.defense(mixed.updates, context))

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Let the defense check its own state."""
        check_state(self.defense, state, round, layout)

    def explain_schedule(self) -> str:
        """Pass on what the defense says that depends on the number of rounds."""
        return explain_schedule(self.defense)
