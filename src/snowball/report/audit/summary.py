"""Results of an audit over all rounds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from snowball.errors import SettingError
from snowball.records.audit import AuditEntry
from snowball.records.states import CLARITIES, classify_clarity, is_kept
from snowball.report.audit.clients import Client, count_clients, rank_client
from snowball.report.audit.history import Moment, list_moments
from snowball.report.audit.names import find_client, unify_names
from snowball.report.audit.setups import Setup, list_setups
from snowball.report.runs import ABSENT

RECENT_ROUNDS = 10
"""The number of last rounds whose clarity is counted."""


@dataclass(frozen=True)
class Audit:
    """An audit's rounds, and the results over all of them."""

    entries: Sequence[AuditEntry]

    def __post_init__(self) -> None:
        """Give clients that were listed by their ids the names that they have later."""
        object.__setattr__(self, "entries", unify_names(self.entries))

    @cached_property
    def clients(self) -> list[Client]:
        """All clients that the audit names, those with the strongest evidence against them first."""
        return sorted(count_clients(self.entries), key=rank_client)

    @cached_property
    def setups(self) -> list[Setup]:
        """The defenses, settings, versions and modes under which the rounds were judged."""
        return list_setups(self.entries)

    @property
    def kept(self) -> dict[str, int]:
        """The reasons why rounds kept the old model, each with its number of rounds, the most common first."""
        return dict(Counter(entry["reason"] or ABSENT for entry in self.entries if is_kept(entry)).most_common())

    @property
    def remarks(self) -> dict[str, int]:
        """What was wrong in rounds that were aggregated all the same, each with its number of rounds."""
        reasons = (entry["reason"] for entry in self.entries if not is_kept(entry))
        return dict(Counter(reason for reason in reasons if reason).most_common())

    @property
    def monitored(self) -> int:
        """The number of rounds in monitor mode."""
        return sum(entry["mode"] == "monitor" for entry in self.entries)

    @property
    def restarts(self) -> int:
        """The number of times that the round numbers do not increase."""
        numbers = [entry["round"] for entry in self.entries]
        return sum(later <= earlier for earlier, later in pairwise(numbers))

    @property
    def clarity(self) -> dict[str, int]:
        """How many of the last rounds were how clear, by the keys of `CLARITIES`; empty if no defense measures it."""
        found = Counter(map(classify_clarity, self.entries[-RECENT_ROUNDS:]))
        return {clarity: found[clarity] for clarity in CLARITIES} if any(found[each] for each in CLARITIES) else {}

    def find_client(self, text: str) -> Client:
        """Return the client that a user means by a name or an id."""
        by_name = {each.client: each for each in self.clients}
        return by_name[find_client(text, by_name, {each.client: each.ids for each in self.clients})]

    def find_round(self, round: int) -> AuditEntry:
        """Return a round; the last one if the rounds start over."""
        found = {entry["round"]: entry for entry in self.entries}
        if not found:
            raise SettingError(f"round {round} is not in this audit, which has no round yet")
        if round not in found:
            near = min(found, key=lambda number: (abs(number - round), number))
            span = f"rounds {min(found)} to {max(found)}"
            raise SettingError(f"round {round} is not in this audit, which has {span}; did you mean {near}?")
        return found[round]

    def history(self, client: str) -> list[Moment]:
        """List the rounds that a client took part in; it is meant by its name or its id."""
        return list(list_moments(self.entries, self.find_client(client).client))

    def plain(self) -> dict[str, Any]:
        """Return the results as plain JSON."""
        kept = self.kept
        return {
            "rounds": len(self.entries),
            "aggregated": len(self.entries) - sum(kept.values()),
            "kept": kept,
            "remarks": self.remarks,
            "monitored": self.monitored,
            "restarts": self.restarts,
            "suspects": [each.client for each in self.clients if each.standing == "suspect"],
            "clarity": self.clarity,
            "setups": [asdict(setup) for setup in self.setups],
            "clients": [asdict(client) for client in self.clients],
        }
