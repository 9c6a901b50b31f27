"""Snowball: updates elect a few trusted ones, and these pick more like themselves.

Qin et al., "Resisting Backdoor Attacks in Federated Learning via Bidirectional Elections and Individual Perspective",
AAAI 2024. Every update clusters all updates from its own point of view and votes for its own cluster. The few with the
most votes are elected. After some rounds, candidates join them whose differences from the elected look like the
differences among the elected.

Deviations: Algorithm 1 lets candidates of "larger" error join, but the paper's text says lowest; we take the lowest.
Clusters cannot tell fewer than four updates apart, so all are elected. `ballot_floor` is ours; the paper's is 0.
"""

from dataclasses import dataclass, field
from math import ceil, floor
from time import perf_counter
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict
from snowball.defenses.history import describe_damage
from snowball.defenses.ops import average_by_examples, count_ties, elect_everyone, elect_highest
from snowball.defenses.snowball.bottom_up import Ballots, count_ballots
from snowball.defenses.snowball.gap import GapRule, find_clusters
from snowball.defenses.snowball.judges import JUDGES, Judge, VAEJudge
from snowball.defenses.snowball.layers import Layers, check_share, count_share, select_voting_layers
from snowball.defenses.snowball.top_down import Growth, grow_elected
from snowball.defenses.snowball.vae import VAESettings
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.records.rounds import CODES
from snowball.updates import Updates

LEAST_VOTERS = 4
LEAST_CLUSTERS = 3
"""Clusters that "gap" may always use, however few updates there are."""

UNKNOWN_ROUNDS = 100
"""Number of rounds that a share of rounds refers to if the real number is unknown."""

MAX_CLUSTERS = 10**6
"""Largest number of clusters in a state."""


@dataclass(frozen=True)
class SnowballMinus:
    """Average the few updates that most others vote for: Snowball's bottom-up election alone.

    Attributes:
        clusters: number of clusters that a voter forms (the paper's K-check); "gap" finds it in the first round.
        gap_from: the fewest clusters that "gap" may find; 2 in the paper, which lets more infected updates win seats.
        gap_to: the most clusters that it may find; never more than half the number of updates, or 3 if that is more.
        gap_rule: the number that "gap" takes: "first" for the first whose gap is within one standard error of the next
            one's, or "largest" for the one with the largest gap.
        layers: the layers that vote: "ends" for the first and last weight layer, "all" weight layers, or their names.
        first_share: share of the updates that is elected, rounded up (the paper's M-check over K).
        ballot_floor: the least weight of a ballot; the clearest has 1. The paper's is 0.
    """

    min_updates: ClassVar[int] = LEAST_VOTERS
    fresh_deltas: ClassVar[bool] = True
    clusters: int | Literal["gap"] = "gap"
    gap_from: int = 3
    gap_to: int = 15
    gap_rule: GapRule = "first"
    layers: Layers = "ends"
    first_share: float = 0.1
    ballot_floor: float = 0.5

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_share("first_share", self.first_share)
        if not 0 <= self.ballot_floor <= 1:
            raise SettingError(f"ballot_floor must lie in [0, 1], got {self.ballot_floor}")
        check_clusters(self.clusters)
        check_gap(self.gap_from, self.gap_to, self.gap_rule)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Hold the bottom-up election."""
        layers = select_voting_layers(updates.layout, self.layers)
        if len(updates) < LEAST_VOTERS:
            all_seated = {"order": torch.zeros(len(updates), dtype=torch.int64)}
            return Verdict(
                average_by_examples(updates, elect_everyone(updates)),
                elect_everyone(updates),
                all_seated,
                context.state,
            )
        start = perf_counter()
        found = self._find_clusters(updates, layers, context)
        clusters = min(found, self.gap_to, limit_clusters(updates)) if self.clusters == "gap" else found
        ballots = count_ballots(updates, layers, clusters, self.ballot_floor)
        count, lots = count_share(self.first_share, len(updates), ceil), context.draw_lots(updates.clients)
        selectees = elect_highest(ballots.totals, count, lots)
        decided = {"clusters": clusters, "ties": count_ties(ballots.totals, selectees)}
        facts = {**decided, **collect_facts(ballots), "seconds.bottom_up": perf_counter() - start}
        elected, more = self._grow(updates, layers, selectees, ballots.totals, context)
        return Verdict(average_by_examples(updates, elected), elected, {**facts, **more}, {"clusters": found})

    def _find_clusters(self, updates: Updates, layers: tuple[str, ...], context: Context) -> int:
        """Return the number of clusters as set, or the layers' average by the Gap statistic in the first round."""
        if self.clusters != "gap":
            if self.clusters >= len(updates):
                raise SettingError(f"{self.clusters} clusters need over {self.clusters} updates, got {len(updates)}")
            return self.clusters
        if context.state:
            return read_clusters(context.state)
        least, most = (min(number, limit_clusters(updates)) for number in (self.gap_from, self.gap_to))
        streams = {layer: context.stream("gap", layer) for layer in layers}
        found = [find_clusters(updates, layer, least, most, streams[layer], self.gap_rule) for layer in layers]
        return round(sum(found) / len(found))

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state without a number of clusters."""
        read_clusters(state)

    def _grow(
        self, updates: Updates, layers: tuple[str, ...], selectees: Tensor, votes: Tensor, context: Context
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Elect the selectees alone, without a top-down election."""
        return selectees, describe_seats(selectees, votes)


@dataclass(frozen=True)
class Snowball(SnowballMinus):
    """Average the updates that others vote for, and those that resemble them: both elections.

    Attributes:
        target_share: share of the updates that is elected in the end, rounded down (the paper's M over K).
        step_share: share that joins in one step of the top-down election, rounded up (M^E over K).
        grow_after: the top-down election is held after this share of the rounds, or, if an int, after this round (T^V);
            if the number of rounds is unknown, the share is of 100 rounds.
        judge: how candidates are scored: "vae" as published; "vae-updates", the same trained on the updates instead of
            their differences; "vae-span" on coordinates in the updates' span; or "distance", the mean squared
            distance to the elected.
        vae: the settings of the VAE, for the judges that use one.
    """

    fresh_deltas: ClassVar[bool] = True
    target_share: float = 0.5
    step_share: float = 0.04
    grow_after: int | float = 0.25
    judge: Literal["vae", "vae-updates", "vae-span", "distance"] = "distance"
    vae: VAESettings = field(default_factory=VAESettings)

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        super().__post_init__()
        check_share("target_share", self.target_share)
        check_share("step_share", self.step_share)
        if self.target_share < self.first_share:
            raise SettingError(f"target_share {self.target_share} is below first_share {self.first_share}")
        if not self.grow_after >= 0 or (isinstance(self.grow_after, float) and self.grow_after > 1):
            raise SettingError(f"grow_after must be a share of the rounds in [0, 1] or a round, got {self.grow_after}")
        if self.judge not in JUDGES:
            raise SettingError(f"judge {self.judge!r} is not one of {', '.join(JUDGES)}")

    def _grow(
        self, updates: Updates, layers: tuple[str, ...], selectees: Tensor, votes: Tensor, context: Context
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Hold the top-down election after the first rounds."""
        if context.round <= self._last_round_without(context):
            return selectees, describe_seats(selectees, votes)
        start = perf_counter()
        target = count_share(self.target_share, len(updates), floor)
        step = count_share(self.step_share, len(updates), ceil)
        judge = JUDGES[self.judge](updates, layers, self.vae, context.stream("judge"), context.device)
        growth = grow_elected(selectees, target, step, judge, context.draw_lots(updates.clients))
        facts = {**describe_seats(selectees, votes, growth), **describe_codes(judge, growth.elected)}
        return growth.elected, {**facts, "seconds.top_down": perf_counter() - start}

    def explain_schedule(self) -> str:
        """Name `grow_after` if it is a share of the rounds."""
        if isinstance(self.grow_after, int):
            return ""
        return f"grow_after = {self.grow_after} is a share of the rounds, not a round such as 5"

    def _last_round_without(self, context: Context) -> float:
        if isinstance(self.grow_after, int):
            return self.grow_after
        return self.grow_after * (context.rounds or UNKNOWN_ROUNDS)


def read_clusters(state: State) -> int:
    """Return the number of clusters that the first round found; refuse anything else."""
    clusters = state.get("clusters")
    if type(clusters) is not int or not 2 <= clusters <= MAX_CLUSTERS:
        raise describe_damage("it lacks the number of clusters that the first round found")
    return clusters


def check_clusters(clusters: object) -> None:
    """Refuse anything but "gap" or a number of clusters from 2."""
    if clusters != "gap" and not (isinstance(clusters, int) and clusters >= 2):
        raise SettingError(f"clusters must be 2 or more, or 'gap', got {clusters!r}")


def check_gap(least: int, most: int, rule: str) -> None:
    """Refuse a range or a rule that cannot give a number of clusters."""
    for name, number in {"gap_from": least, "gap_to": most}.items():
        if not (isinstance(number, int) and number >= 2):
            raise SettingError(f"{name} must be a number of clusters, 2 or more, got {number!r}")
    if most < least:
        raise SettingError(f"gap_to {most} is below gap_from {least}")
    if rule not in get_args(GapRule):
        raise SettingError(f"gap_rule {rule!r} is not one of {', '.join(get_args(GapRule))}")


def limit_clusters(updates: Updates) -> int:
    """Return the most clusters that "gap" may use: half the number of updates, or 3 if that is more.

    With more clusters, many would hold one row, which votes for nobody but itself.
    """
    return max(LEAST_CLUSTERS, len(updates) // 2)


def collect_facts(ballots: Ballots) -> dict[str, Tensor | float]:
    """Return the ballots as facts of a verdict."""
    facts: dict[str, Tensor | float] = {"votes": ballots.totals}
    parts = {"votes": ballots.votes, "clarity": ballots.clarity, "weight": ballots.weight}
    for name, by_layer in parts.items():
        facts |= {f"{name}.{layer}": values for layer, values in by_layer.items()}
    return facts


def describe_seats(selectees: Tensor, votes: Tensor, growth: Growth | None = None) -> dict[str, Tensor | float]:
    """Return the facts about seats: the step, the score and the margin of each row.

    For selectees, the score is their votes, and the margin is their lead over the best row that is not a selectee.
    """
    order = torch.where(selectees, 0, -1) if growth is None else growth.order
    score = torch.full(votes.shape, torch.nan, dtype=torch.float64) if growth is None else growth.score.clone()
    margin = torch.full_like(score, torch.nan) if growth is None else growth.margin.clone()
    score[selectees] = votes[selectees]
    margin[selectees] = votes[selectees] - votes[~selectees].max() if not selectees.all() else torch.nan
    return {"order": order, "score": score, "margin": margin}


def describe_codes(judge: Judge, elected: Tensor) -> dict[str, Tensor]:
    """Return each row's two coordinates in the latent space of a trained VAE; nothing without one."""
    if not isinstance(judge, VAEJudge) or judge.fresh:
        return {}
    return dict(zip(CODES, judge.places(elected.nonzero()[:, 0]).T, strict=True))
