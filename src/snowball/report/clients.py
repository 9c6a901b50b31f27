"""Each client over all rounds of a run: how often it was elected or left out, and mainly why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from snowball.records.rounds import RoundRecord
from snowball.report.audit.facts import CHARGE_FACT, MAX_CHARGE_CHARS

EVIDENCE = ("votes", "suspicion", "scores", "score")
"""The facts that say most about why an update was left out, the best first; else the first of the others is taken."""

CHARGED, COMPARED, FULL, UNKNOWN = "charged", "compared", "full", "unknown"


@dataclass
class ClientSummary:
    """A client over all rounds.

    Attributes:
        rounds: how many rounds it took part in.
        infected: in how many of these it sent an infected update.
        elected: in how many of these it was elected.
        infected_elected: in how many rounds an infected update of it was elected.
        dropped: how often it was dropped before the election, by reason.
        causes: how often it was left out for each cause.
        charge: the last charge against it, in words.
        values: by fact, its numbers in the rounds that compare it with the elected.
        limits: by fact, the numbers of the elected closest to it in these rounds.
    """

    client: str
    rounds: int = 0
    infected: int = 0
    elected: int = 0
    infected_elected: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    charge: str = ""
    values: dict[str, list[float]] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """In how many rounds it was left out, or dropped."""
        return self.rounds - self.elected

    @property
    def reason(self) -> str:
        """The main reason for leaving it out, in words; empty if it always was elected."""
        reasons = self.causes + Counter({("dropped", name): count for name, count in self.dropped.items()})
        if not reasons:
            return ""
        ((cause, name), count), *_ = reasons.most_common(1)
        return f"{self._explain(cause, name)}{_count_share(count, self.left_out)}"

    def _explain(self, cause: str, name: str) -> str:
        if cause == "dropped":
            return f"dropped: {name}"
        if cause == CHARGED:
            return f"charged: {self.charge}"
        if cause == COMPARED:
            own, limit = median(self.values[name]), median(self.limits[name])
            return f"{name} {own:.3g}, elected: {limit:.3g} or {'more' if own < limit else 'less'}"
        return f"{name} like those of the elected, no seat left" if cause == FULL else "no reason on record"


def summarise_clients(records: Iterable[RoundRecord]) -> list[ClientSummary]:
    """Summarise every client of a run: infected ones first, then those left out most."""
    found: dict[str, ClientSummary] = {}
    for record in records:
        name, values = choose_evidence(record)
        elected = [
            value for value, chosen in zip(values, record["elected"], strict=True) if chosen and value is not None
        ]
        for index, client in enumerate(record["participants"]):
            summary = found.setdefault(client, ClientSummary(client))
            _count_round(summary, record, index)
            if not record["elected"][index] and client not in record.get("dropped", {}):
                _note_cause(summary, record, name, values[index], elected)
    return sorted(found.values(), key=lambda each: (not each.infected, -each.left_out, len(each.client), each.client))


def choose_evidence(record: RoundRecord) -> tuple[str, Sequence[float | None]]:
    """Return the name and the numbers of the fact that says most about a round's election."""
    columns = {name: fact for name, fact in record["facts"].items() if is_column(fact, len(record["participants"]))}
    name = next((name for name in (*EVIDENCE, *sorted(columns)) if name in columns), "")
    return name, columns.get(name, [None] * len(record["participants"]))


def is_column(fact: Any, length: int) -> bool:
    """Whether a fact has one number per participant."""
    return (
        isinstance(fact, list)
        and len(fact) == length
        and all(entry is None or isinstance(entry, int | float) for entry in fact)
    )


def _count_round(summary: ClientSummary, record: RoundRecord, index: int) -> None:
    bad, chosen = record["malicious"][index], record["elected"][index]
    summary.rounds += 1
    summary.infected += bad
    summary.elected += chosen
    summary.infected_elected += bad and chosen
    if reason := record.get("dropped", {}).get(summary.client):
        summary.dropped[reason] += 1


def _note_cause(
    summary: ClientSummary, record: RoundRecord, name: str, value: float | None, elected: Sequence[float]
) -> None:
    """Note why a client was left out of a round: a charge, or how its number compares with those of the elected."""
    charge = record["facts"].get(CHARGE_FACT)
    if isinstance(charge, str):
        summary.causes[CHARGED, ""] += 1
        summary.charge = charge[:MAX_CHARGE_CHARS]
    elif value is None or not elected:
        summary.causes[UNKNOWN, ""] += 1
    elif min(elected) <= value <= max(elected):
        summary.causes[FULL, name] += 1
    else:
        summary.causes[COMPARED, name] += 1
        summary.values.setdefault(name, []).append(value)
        summary.limits.setdefault(name, []).append(min(elected) if value < min(elected) else max(elected))


def _count_share(count: int, total: int) -> str:
    return "" if count == total else f" ({count} of {total})"
