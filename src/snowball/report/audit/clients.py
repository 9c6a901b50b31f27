"""What there is against each client over all rounds, and how it fared."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt

from snowball.records.audit import AuditEntry, Decision
from snowball.records.states import JUDGED_STATES, classify_clients
from snowball.report.audit.names import write_client

STANDINGS = {
    "suspect": "suspect",
    "malformed": "malformed replies",
    "cleared": "suspect earlier",
    "denied": "denied",
    "probation": "on probation",
    "often": "often left out",
    "failed": "failed in its last round",
    "silent": "silent in its last round",
    "fine": "nothing against it",
}
"""What there is against a client over all rounds, the worst first; only the first is an accusation that stands."""

EVIDENCE = ("malformed", "cleared")
"""Standings that rank together, by the number of rounds with evidence."""

CLEARED_AFTER = 5
"""A suspicion ends when a client was judged in this many rounds in a row without being suspect."""

OFTEN_DEVIATIONS = 4.0
"""Standard deviations above its fair share from which a client is left out remarkably often."""


@dataclass(frozen=True)
class Suspicion:
    """A stretch of rounds in which a client was suspect again and again.

    Attributes:
        first, last: the first and the last round in which it was suspect.
        suspect, judged: in how many rounds it was suspect and judged since the first one.
        stands: whether it has not ended; see `CLEARED_AFTER`.
    """

    first: int
    last: int
    suspect: int
    judged: int
    stands: bool


@dataclass(frozen=True)
class Client:
    """One client over all rounds.

    Attributes:
        ids: the framework's ids of it, if it has another name.
        standing: a key of `STANDINGS`.
        asked: rounds in which it was asked; None if the audit never says who was asked.
        rounds: in how many rounds it was in each state, a key of `STATES`.
        dropped: how many of its replies were dropped, by reason.
        suspicion: the last stretch of rounds in which it was suspect.
        fair_share: in how many rounds it would have been left out without an accusation by chance.
        decision: the decision of a person about it in the last round.
    """

    client: str
    ids: list[str]
    standing: str
    asked: int | None
    answered: int
    averaged: int
    rounds: dict[str, int]
    dropped: dict[str, int]
    suspicion: Suspicion | None
    fair_share: float
    decision: Decision | None

    @property
    def label(self) -> str:
        """The client's name with its id, fit to be shown."""
        return write_client(self.client, self.ids)

    @property
    def passed_over(self) -> int:
        """The number of rounds in which it was left out without an accusation."""
        return self.rounds.get("not_needed", 0) + self.rounds.get("left_out", 0)


@dataclass
class Tally:
    """The counts of one client while the rounds are read."""

    ids: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    averaged: int = 0
    rounds: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    suspicion: Suspicion | None = None
    since_suspect: int = 0
    fair_share: float = 0.0
    variance: float = 0.0
    last_state: str = ""

    def count_state(self, state: str, round: int, share_left_out: float) -> None:
        """Count a round; `share_left_out` is the share of the unaccused that it left out."""
        self.rounds[state] += 1
        self.last_state = state
        if state in ("elected", "not_needed", "left_out"):
            self.fair_share += share_left_out
            self.variance += share_left_out * (1 - share_left_out)
        if state in JUDGED_STATES:
            self._update_suspicion(state == "suspect", round)

    def _update_suspicion(self, suspect: bool, round: int) -> None:
        self.since_suspect = 0 if suspect else self.since_suspect + 1
        before = self.suspicion
        if before and before.stands:
            stands = self.since_suspect < CLEARED_AFTER
            last, count = (round, before.suspect + 1) if suspect else (before.last, before.suspect)
            self.suspicion = Suspicion(before.first, last, count, before.judged + 1, stands)
        elif suspect:
            self.suspicion = Suspicion(round, round, 1, 1, True)

    def find_standing(self, decision: Decision | None) -> str:
        """Return the client's standing, a key of `STANDINGS`."""
        passed_over = self.rounds["not_needed"] + self.rounds["left_out"]
        found = {
            "suspect": self.suspicion is not None and self.suspicion.stands,
            "malformed": self.rounds["malformed"] > 0,
            "cleared": self.suspicion is not None,
            "denied": decision is not None and decision["rule"] == "deny",
            "probation": decision is not None and decision["rule"] == "probation",
            "often": passed_over - self.fair_share > OFTEN_DEVIATIONS * sqrt(self.variance) > 0,
            "failed": self.last_state == "failed",
            "silent": self.last_state == "silent",
        }
        return next((standing for standing, holds in found.items() if holds), "fine")


def count_clients(entries: Sequence[AuditEntry]) -> list[Client]:
    """Return all clients that the rounds name."""
    tallies = tally_clients(entries)
    knows = any(entry["asked"] is not None for entry in entries)
    decisions = entries[-1]["decisions"] if entries else []
    decided = {decision["client"]: decision for decision in decisions}
    return [
        Client(
            client=client,
            ids=list(tally.ids),
            standing=tally.find_standing(decided.get(client)),
            asked=tally.asked if knows else None,
            answered=tally.answered,
            averaged=tally.averaged,
            rounds=dict(tally.rounds),
            dropped=dict(sorted(tally.dropped.items())),
            suspicion=tally.suspicion,
            fair_share=tally.fair_share,
            decision=decided.get(client),
        )
        for client, tally in tallies.items()
    ]


def rank_client(client: Client) -> tuple[int, float, str]:
    """Return a sort key: the standing, then the number of rounds that speak against the client, then its name."""
    rank = "malformed" if client.standing in EVIDENCE else client.standing
    against = client.rounds.get("suspect", 0) + client.rounds.get("malformed", 0)
    often = client.passed_over - client.fair_share if client.standing == "often" else 0
    return list(STANDINGS).index(rank), -(against + often), client.client


def tally_clients(entries: Iterable[AuditEntry]) -> dict[str, Tally]:
    """Count the rounds of all clients in one pass."""
    tallies: dict[str, Tally] = {}
    for entry in entries:
        states = classify_clients(entry)
        passed_over = sum(state in ("not_needed", "left_out") for state in states.values())
        unaccused = passed_over + sum(state == "elected" for state in states.values())
        share = passed_over / unaccused if unaccused else 0.0
        for client, state in states.items():
            tallies.setdefault(client, Tally()).count_state(state, entry["round"], share)
        for client in set(entry["asked"] or ()):
            tallies[client].asked += 1
        for client in set(entry["answered"]):
            tallies[client].answered += 1
        for client in set(entry["averaged"]):
            tallies.setdefault(client, Tally()).averaged += 1
        for fault in entry["dropped"]:
            tallies[fault["client"]].dropped[fault["reason"]] += 1
        for client in states.keys() & entry["ids"].keys():
            tallies[client].ids.pop(entry["ids"][client], None)
            tallies[client].ids[entry["ids"][client]] = None
    return tallies
