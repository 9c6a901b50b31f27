"""The outcome of a run: whether the defense held, decided from the run's rounds and from the runs beside it.

The backdoor is *in* if it works on 50 % of the triggered samples, and *out* up to 20 %: clean models err, too. If the
Ideal run of the same settings shows that a clean model errs more often, both limits rise. Infected updates are *kept
out* if they have at most a tenth of the weight in the average that they have among the arriving updates. The first
quarter of the attacked rounds does not count here, since some defenses start by watching.

| infected updates averaged | backdoor at the end | FedAvg run of the same settings | outcome: reason |
|---|---|---|---|
| none arrived | any | any | none, or none: waiting if a backdoor is measured |
| any | not measured: the attack plants none | any | damage |
| some | in | any | in, since its first round there |
| some | between in and out | any | partly |
| some | out, but it was in for two rounds or more | any | gone |
| more than if kept out | out | learned it by then | out: averaged |
| more than if kept out | out | did not learn it by then | low: harmless |
| more than if kept out | out | none shows it | low: alone, or low if this is FedAvg |
| kept out | out, or any if none was averaged | learned it by then | out |
| kept out | out, or any if none was averaged | did not learn it by then | unclear: harmless |
| kept out | out, or any if none was averaged | none shows it; under 15 attacked rounds | unclear: short |
| kept out | out, or any if none was averaged | none shows it; 15 attacked rounds or more | out |

A model that is right on under 25 % of clean samples is unclear: untrained, and never in, partly or out. So is one that
would be partly and is right on under 50 %, and one that would be out and is right on under half as many as FedAvg's. A
run without an evaluated round is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from snowball.report.runs import Point, Row

CHANCE = 0.15
"""The backdoor accuracy of a clean model, unless the Ideal run beside it shows more."""

MAX_OUT, MIN_IN = 0.05, 0.35
"""Above chance: the backdoor accuracy up to which the backdoor is out, and from which it is in."""

MIN_MAIN_ACCURACY, MIN_MAIN_ACCURACY_IN_PART, MIN_SHARE_OF_FEDAVG = 0.25, 0.5, 0.5
"""The main accuracy from which a model can be judged, from which it can have learned a backdoor in part instead of
erring by chance, and the share of FedAvg's from which a defense can hold."""

MAX_EXPOSURE, WARM_UP_SHARE = 0.1, 0.25
"""The exposure up to which infected updates count as kept out, and the share of attacked rounds that does not count."""

MIN_ATTACKED_ROUNDS = 15
"""The attacked rounds that a backdoor is given to take hold; FedAvg learns the demo's in 11."""

MIN_SPELL_ROUNDS = 2
"""The rounds with the backdoor in after which a run counts as recovered; fewer are noise."""

UNDEFENDED, CLEAN = "fedavg", "ideal"
"""The defenses whose runs show whether the attack works, and how often a clean model errs."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        key: a key of `snowball.report.prose.OUTCOMES`.
        since: the round in which the backdoor came in, if it did.
        until: the round in which it was out again, if it was.
        reason: what decided, where a key has several: see `snowball.report.prose.REASONS`.
    """

    key: str
    since: int | None = None
    until: int | None = None
    reason: str = ""


class Limits(NamedTuple):
    """The backdoor accuracies up to which the backdoor is out, and from which it is in."""

    out: float
    into: float

    def rate(self, backdoor_accuracy: float) -> str:
        """Return "in", "partly" or "out"."""
        if backdoor_accuracy >= self.into:
            return "in"
        return "out" if backdoor_accuracy <= self.out else "partly"


class Spell(NamedTuple):
    """Rounds with the backdoor in: the first, the first that is out again, and how many there are."""

    since: int
    until: int | None
    rounds: int


def judge_rows(rows: Sequence[Row]) -> list[Outcome]:
    """Judge each run; those with the same settings and seed show whether the attack works."""
    longest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row.rounds):
        longest[row.conditions, row.defense] = row
    return [
        judge_row(
            row,
            longest.get((row.conditions, UNDEFENDED)) if row.defense != UNDEFENDED else None,
            longest.get((row.conditions, CLEAN)),
        )
        for row in rows
    ]


def judge_row(row: Row, fedavg: Row | None = None, ideal: Row | None = None) -> Outcome:
    """Judge a run, beside the FedAvg and the Ideal run of the same settings."""
    last = _find_last_point(row)
    if last is None:
        return Outcome("empty")
    if not row.infected:
        return Outcome("none", reason="" if last.backdoor_accuracy is None else "waiting")
    if last.backdoor_accuracy is None:
        return Outcome("damage")
    limits = compute_limits(ideal, last.round)
    level = limits.rate(last.backdoor_accuracy) if row.averaged else "out"
    if level == "out":
        return _judge_low(row, last, fedavg, limits)
    if (last.main_accuracy or 0.0) < (MIN_MAIN_ACCURACY if level == "in" else MIN_MAIN_ACCURACY_IN_PART):
        return Outcome("unclear", reason="untrained")
    return Outcome(level, since=find_spells(row.points, limits)[-1].since if level == "in" else None)


def _judge_low(row: Row, last: Point, fedavg: Row | None, limits: Limits) -> Outcome:
    """Judge a run whose last model has not learned the backdoor."""
    if spells := [spell for spell in find_spells(row.points, limits) if spell.rounds >= MIN_SPELL_ROUNDS]:
        return Outcome("gone", since=spells[-1].since, until=spells[-1].until)
    works = does_attack_work(fedavg, last.round, limits)
    kept_out = compute_exposure(row.points) <= MAX_EXPOSURE
    if not kept_out and not works:
        return Outcome("low", reason="" if row.defense == UNDEFENDED else "alone" if works is None else "harmless")
    if _is_untrained(last, fedavg):
        return Outcome("unclear", reason="untrained")
    if works is False:
        return Outcome("unclear", reason="harmless")
    if works is None and sum(point.infected > 0 for point in row.points) < MIN_ATTACKED_ROUNDS:
        return Outcome("unclear", reason="short")
    return Outcome("out", reason="" if kept_out else "averaged")


def compute_limits(ideal: Row | None, round: int) -> Limits:
    """Return the limits in a round, beside the Ideal run of the same settings."""
    clean = _find_last_point(ideal, round) if ideal else None
    chance = max(CHANCE, (clean and clean.backdoor_accuracy) or 0.0)
    return Limits(chance + MAX_OUT, chance + MIN_IN)


def compute_exposure(points: Sequence[Point]) -> float:
    """Return the infected share of the averaged updates over the infected share of all: 0 kept out, 1 as in FedAvg."""
    attacked = [point for point in points if point.infected]
    attacked = attacked[int(WARM_UP_SHARE * len(attacked)) :]
    arrived = sum(point.infected for point in attacked) * sum(point.elected for point in attacked)
    averaged = sum(point.averaged for point in attacked) * sum(point.participants for point in attacked)
    return averaged / arrived if arrived else 0.0


def does_attack_work(fedavg: Row | None, round: int, limits: Limits) -> bool | None:
    """Return whether FedAvg learned the backdoor by this round; None if no run shows it, or a run only in part."""
    last = _find_last_point(fedavg, round) if fedavg else None
    if fedavg is None or last is None or last.backdoor_accuracy is None or _is_untrained(last):
        return None
    before = [point for point in fedavg.points if point.round <= round]
    level = limits.rate(last.backdoor_accuracy)
    if level == "in" or any(spell.rounds >= MIN_SPELL_ROUNDS for spell in find_spells(before, limits)):
        return True
    return False if level == "out" and last.round == round else None


def find_spells(points: Sequence[Point], limits: Limits) -> list[Spell]:
    """Find the rounds with the backdoor in: from each round in which it is in to the next in which it is out.

    Models that cannot be judged, or that no infected update has reached, do not count.
    """
    spells: list[Spell] = []
    for point, averaged in zip(points, accumulate(point.averaged for point in points), strict=True):
        if not averaged or point.backdoor_accuracy is None or _is_untrained(point):
            continue
        level, is_open = limits.rate(point.backdoor_accuracy), bool(spells) and spells[-1].until is None
        if level == "in" and not is_open:
            spells.append(Spell(point.round, None, 1))
        elif level == "in":
            spells[-1] = spells[-1]._replace(rounds=spells[-1].rounds + 1)
        elif level == "out" and is_open:
            spells[-1] = spells[-1]._replace(until=point.round)
    return spells


def _find_last_point(row: Row, round: int | None = None) -> Point | None:
    """Return the last round that was evaluated, up to this one."""
    evaluated = [point for point in row.points if point.main_accuracy is not None]
    return next((point for point in reversed(evaluated) if round is None or point.round <= round), None)


def _is_untrained(point: Point, fedavg: Row | None = None) -> bool:
    """Whether a model has learned so little that its answers to triggered samples say nothing."""
    undefended = _find_last_point(fedavg, point.round) if fedavg else None
    wanted = MIN_SHARE_OF_FEDAVG * ((undefended and undefended.main_accuracy) or 0.0)
    return (point.main_accuracy or 0.0) < max(MIN_MAIN_ACCURACY, wanted)
