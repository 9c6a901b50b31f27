"""Results of an audit: how the rounds ended, how each client fared, and the history of one client."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from snowball.errors import SettingError
from snowball.records.audit import AuditEntry
from snowball.registry import suggest_name
from snowball.report.runs import ABSENT

STATES = {
    "elected": "elected",
    "left_out": "left out",
    "dropped": "dropped",
    "failed": "failed",
    "unjudged": "answered, not judged",
    "silent": "silent",
}
"""What a round can mean to a client that takes part in it."""

FAILURE_REASON = "error"
"""The reason for a client that failed instead of replying."""

FIRST_FACTS = ("votes", "score", "margin")
STEP_FACT = "order"
"""The fact that says at which step a client was elected; at step 0 its score is votes, later a distance."""

Range = tuple[float, float]
MAX_FACTS, MAX_NAME_CHARS, MAX_NUMBER = 6, 60, 1e300
"""The most facts of a client, characters of a name, and the highest number that are shown."""

CHARGE_FACT = "charge"
"""The fact that says in words what those left out in a round are accused of."""

MAX_CHARGE_CHARS = 160
"""The most characters of a charge that are shown: it may name a layer."""


@dataclass(frozen=True)
class Client:
    """One client over all rounds.

    Attributes:
        asked: rounds in which it was asked; None if the audit never says who was asked.
        dropped: how many of its replies were dropped, by reason.
        streak: the most judged rounds in a row in which it was left out; other rounds do not count.
    """

    client: str
    asked: int | None
    answered: int
    silent: int
    dropped: dict[str, int]
    elected: int
    left_out: int
    streak: int

    def cells(self) -> tuple[str, ...]:
        """Return the client as text, one cell for each of `HEADERS`."""
        dropped = ", ".join(f"{count} {escape_text(reason)}" for reason, count in self.dropped.items())
        asked = ABSENT if self.asked is None else str(self.asked)
        counts = (self.left_out, self.streak, self.elected, asked, self.answered, self.silent)
        return escape_text(self.client), *map(str, counts), dropped or "0"


HEADERS = ("Client", "Left out", "Longest streak", "Elected", "Asked", "Answered", "Silent", "Dropped")


@dataclass(frozen=True)
class Moment:
    """One round from a client's point of view.

    Attributes:
        state: a key of `STATES`.
        words: what happened.
        facts: the client's numbers.
        ranges: the lowest and the highest number among the elected, if the client was left out, to compare with.
    """

    round: int
    time: str
    state: str
    words: str
    facts: dict[str, float]
    ranges: dict[str, Range]


@dataclass(frozen=True)
class Audit:
    """An audit's rounds, and the results over all of them."""

    entries: Sequence[AuditEntry]

    @cached_property
    def clients(self) -> list[Client]:
        """All clients that the audit names, those left out most often first."""
        asked = count_by_client(entry["asked"] or () for entry in self.entries)
        answered = count_by_client(entry["answered"] for entry in self.entries)
        silent = count_by_client(entry["silent"] for entry in self.entries)
        elected = count_by_client(entry["elected"] for entry in self.entries)
        left_out = count_by_client(entry["left_out"] for entry in self.entries)
        dropped = Counter((fault["client"], fault["reason"]) for entry in self.entries for fault in entry["dropped"])
        knows = any(entry["asked"] is not None for entry in self.entries)
        streaks = find_longest_streaks(self.entries)
        by_client: dict[str, dict[str, int]] = {}
        for (client, reason), count in sorted(dropped.items()):
            by_client.setdefault(client, {})[reason] = count
        found = [
            Client(
                client=client,
                asked=asked[client] if knows else None,
                answered=answered[client],
                silent=silent[client],
                dropped=by_client.get(client, {}),
                elected=elected[client],
                left_out=left_out[client],
                streak=streaks[client],
            )
            for client in set(by_client).union(asked, answered, silent, elected, left_out)
        ]
        return sorted(found, key=lambda each: (-each.left_out, -sum(each.dropped.values()), each.client))

    @property
    def kept(self) -> dict[str, int]:
        """The reasons why rounds kept the old model, each with its number of rounds, the most common first."""
        return dict(Counter(entry["reason"] or ABSENT for entry in self.entries if is_kept(entry)).most_common())

    @property
    def monitored(self) -> int:
        """The number of rounds in monitor mode."""
        return sum(entry["mode"] == "monitor" for entry in self.entries)

    @property
    def restarts(self) -> int:
        """The number of times that the round numbers do not increase."""
        numbers = [entry["round"] for entry in self.entries]
        return sum(later <= earlier for earlier, later in pairwise(numbers))

    def history(self, client: str) -> list[Moment]:
        """List the rounds that a client took part in."""
        if client not in {each.client for each in self.clients}:
            near = suggest_name(client, [escape_text(each.client) for each in self.clients])
            raise SettingError(
                f"{escape_text(client)!r} is not a client of this audit, which has {len(self.clients)}{near}"
            )
        return list(_list_moments(self.entries, client))

    def plain(self) -> dict[str, Any]:
        """Return the results as plain JSON."""
        kept = self.kept
        return {
            "rounds": len(self.entries),
            "aggregated": len(self.entries) - sum(kept.values()),
            "kept": kept,
            "monitored": self.monitored,
            "restarts": self.restarts,
            "clients": [asdict(client) for client in self.clients],
        }


def is_kept(entry: AuditEntry) -> bool:
    """Whether the round kept the old model."""
    return entry["outcome"] == "kept"


def classify_clients(entry: AuditEntry) -> dict[str, str]:
    """Return what the round means to each client in it, a key of `STATES`; an election takes precedence."""
    return {
        **dict.fromkeys([*(entry["asked"] or ()), *entry["silent"]], "silent"),
        **dict.fromkeys(entry["answered"], "unjudged"),
        **{fault["client"]: "failed" if fault["reason"] == FAILURE_REASON else "dropped" for fault in entry["dropped"]},
        **dict.fromkeys(entry["left_out"], "left_out"),
        **dict.fromkeys(entry["elected"], "elected"),
    }


def find_longest_streaks(entries: Iterable[AuditEntry]) -> Counter[str]:
    """Return the most rounds in a row in which each client was left out; only an election ends a streak."""
    running: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for entry in entries:
        for client in entry["elected"]:
            running[client] = 0
        for client in set(entry["left_out"]).difference(entry["elected"]):
            running[client] += 1
            longest[client] = max(longest[client], running[client])
    return longest


def list_fact_names(entry: AuditEntry) -> list[str]:
    """List facts with one number per client, the most telling first; those of layers only if there are no others."""
    names = [name for name, fact in entry["facts"].items() if isinstance(fact, dict) and name != STEP_FACT]
    names = [name for name in names if "." not in name] or names
    first = {name: rank for rank, name in enumerate(FIRST_FACTS)}
    return sorted(names, key=lambda name: (first.get(name, len(FIRST_FACTS)), name))[:MAX_FACTS]


def read_number(fact: dict[str, Any], client: str) -> float | None:
    """Return a client's number, or None if it has none."""
    value = fact.get(client)
    return value if isinstance(value, int | float) and abs(value) <= MAX_NUMBER else None


def escape_text(text: str, longest: int = MAX_NAME_CHARS) -> str:
    """Return untrusted text on one line, with no control or invisible characters and at most `longest` characters."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def count_by_client(rounds: Iterable[Iterable[str]]) -> Counter[str]:
    """Count in how many rounds each client is named."""
    return Counter(client for clients in rounds for client in set(clients))


def _list_moments(entries: Iterable[AuditEntry], client: str) -> Iterator[Moment]:
    for entry in entries:
        if state := classify_clients(entry).get(client):
            found = {name: read_number(entry["facts"][name], client) for name in list_fact_names(entry)}
            facts = {name: value for name, value in found.items() if value is not None}
            ranges = find_elected_ranges(entry) if state == "left_out" else {}
            words = describe_moment(entry, client, state)
            yield Moment(
                entry["round"],
                entry["time"],
                state,
                words,
                facts,
                {name: ranges[name] for name in ranges if name in facts},
            )


def find_elected_ranges(entry: AuditEntry) -> dict[str, Range]:
    """Return the lowest and the highest number among the elected, by fact."""
    steps = entry["facts"].get(STEP_FACT)
    joined = [each for each in entry["elected"] if not isinstance(steps, dict) or steps.get(each) != 0]
    found: dict[str, Range] = {}
    for name in list_fact_names(entry):
        among = joined if name in ("score", "margin") else entry["elected"]
        values = [value for each in among if (value := read_number(entry["facts"][name], each)) is not None]
        if values:
            found[name] = min(values), max(values)
    return found


def read_charge(entry: AuditEntry) -> str:
    """Return what those left out in a round are accused of, or nothing if the defense gives no such text."""
    charge = entry["facts"].get(CHARGE_FACT)
    return escape_text(charge, MAX_CHARGE_CHARS) if isinstance(charge, str) else ""


def describe_moment(entry: AuditEntry, client: str, state: str) -> str:
    """Describe in words what happened to a client in a round."""
    words = STATES[state]
    if entry["mode"] == "monitor" and state == "left_out":
        words = "would have been left out, but was averaged"
    if state == "left_out" and (charge := read_charge(entry)):
        words = f"{words}: {charge}"
    faults = [fault for fault in entry["dropped"] if fault["client"] == client]
    said = "; ".join(f"{escape_text(fault['reason'])}: {fault['detail'] or ABSENT}" for fault in faults)
    more = f", {said}" if state in ("dropped", "failed") else f"; a reply was dropped, {said}"
    kept = f"; the old model was kept: {entry['reason'] or ABSENT}" if is_kept(entry) else ""
    return f"{words}{more if said else ''}{kept}"
