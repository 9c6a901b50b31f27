"""The evidence of a round: what a defense's numbers mean, which direction of them is bad, and the ballots."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from snowball.records.audit import AuditEntry
from snowball.records.text import escape_text

DIRECTIONS = {"fewer": -1, "lower": -1, "higher": 1, "longer": 1, "another": 0}
"""The words for what is worse, and its direction; 0 for numbers that only tell groups apart."""


class Meaning(NamedTuple):
    """What a fact means; `worse` is a key of `DIRECTIONS`, or empty if the fact speaks neither for nor against."""

    worse: str
    words: str


FACTS = {
    "suspicion": Meaning("higher", "the sum of all traces of a backdoor in the update"),
    "strangeness": Meaning("higher", "how far the client deviates in length, direction and rewired inputs"),
    "votes": Meaning("fewer", "votes that the updates gave this one"),
    "score": Meaning("higher", "how far the update lies from those elected before"),
    "scores": Meaning("higher", "how far the update lies from the others, or from what was predicted"),
    "distance": Meaning("higher", "squared distance of the update from the mean of all"),
    "direction": Meaning("higher", "how far the angle to the model lies from the median, in standard deviations"),
    "signs": Meaning("higher", "how far the agreement of signs lies from the median, in standard deviations"),
    "cosines": Meaning("higher", "squared cosine distances from the others, added up"),
    "manhattan": Meaning("higher", "absolute differences to the others, added up"),
    "length": Meaning("higher", "differences in length to the others, added up"),
    "distances": Meaning("higher", "distance of the update from the last aggregate"),
    "trust": Meaning("lower", "how far the update agrees with the server's own"),
    "compromise": Meaning("higher", "how far the update goes along the mean of all, beside those in the same role"),
    "weights": Meaning("lower", "weight of the update in the average"),
    "elected": Meaning("lower", "1 if this member of the intersection elected the update, else 0"),
    "suspicious": Meaning("higher", "1 if the output layer looks trained on few labels, else 0"),
    "exceedings": Meaning("fewer", "classes that the update moves noticeably in the output layer"),
    "clusters": Meaning("another", "the update's cluster, or the number of clusters; -1 is none"),
    "parts": Meaning("fewer", "elected rows that the update is part of, where rows were mixed"),
    "metric": Meaning("another", "a measure of the model; who is pruned lies far from the others in one of them"),
    "margin": Meaning("lower", "lead over the best update that did not join at the same step"),
    "norms": Meaning("longer", "length of the update"),
    "lengths": Meaning("longer", "length of the update"),
    "positive": Meaning("", "share of positive entries in the columns that were drawn"),
    "charged": Meaning("", "1 if the ballot charged the update, else 0"),
    "shares": Meaning("", "share of the update in the average"),
    "charge": Meaning("", "what the suspects of the round are accused of"),
    "words": Meaning("", "what the ballot found"),
    "clarity": Meaning("", "how clear a ballot is; for a layer, how clearly the update told others apart in its vote"),
    "bound": Meaning("", "the clarity from which a ballot charges, or the length to which updates are clipped"),
    "separation": Meaning("", "distance between the suspects and the others, in standard deviations"),
    "order": Meaning("", "the step at which the update was elected, -1 if it was not"),
    "weight": Meaning("", "weight of the vote that the update cast in a layer"),
    "code": Meaning("", "coordinate of the update in the latent space of the VAE"),
    "ties": Meaning("", "updates with as many votes as the last one elected"),
    "classes": Meaning("", "the output neurons by which updates are compared"),
    "tolerated": Meaning("", "malicious updates that the defense withstands"),
    "critical": Meaning("", "tensors by which the models are clustered"),
    "removed": Meaning("", "updates that each pass removes"),
    "trimmed": Meaning("", "values that are dropped at each end of every coordinate"),
    "agreed": Meaning("", "updates that all members of the intersection elect"),
    "accepted": Meaning("", "updates in accepted clusters"),
    "probed": Meaning("", "random inputs on which models were compared"),
    "blacklisted": Meaning("", "clients that are left out for good"),
    "history_mib": Meaning("", "memory of the defense, in MiB"),
    "clipped": Meaning("", "the share of updates, or the model, that was clipped"),
    "threshold": Meaning("", "signs that must agree for a coordinate to move as updates say"),
    "reversed": Meaning("", "the share of coordinates that moved the other way"),
    "seconds": Meaning("", "time that a step of the defense took"),
}
"""The facts of the package's defenses by the first part of their name, the most telling first."""

STEP_FACT = "order"
"""The fact that says at which step a client was elected; at step 0 its score is votes, later a distance."""

CHARGE_FACT = "charge"
"""The fact that says in words what the suspects of a round are accused of."""

CHARGED, WORDS, CLARITY, BOUND = "charged", "words", "clarity", "bound"
"""The first parts of the names of facts about a ballot, whose name is the rest."""

Range = tuple[float, float]
MAX_FACTS, MAX_BALLOTS, MAX_NUMBER = 6, 12, 1e300
"""The most facts of a client, the most ballots of a round, and the highest number that are shown."""

MAX_CHARGE_CHARS = 160
"""The most characters of a charge that are shown: it may name a layer."""


@dataclass(frozen=True)
class Ballot:
    """What one ballot of a round found.

    Attributes:
        words: what the group that stands out has in common.
        clarity: how clear it is, in the ballot's own unit; higher is worse.
        bound: the clarity from which the ballot charges the group.
        charged: the clients that it charged; None if the round does not say.
    """

    name: str
    words: str
    clarity: float | None
    bound: float | None
    charged: tuple[str, ...] | None


def find_meaning(name: str) -> Meaning | None:
    """Return what a fact means; names of layers, ballots and members may follow a dot."""
    return FACTS.get(name.partition(".")[0])


def list_fact_names(entry: AuditEntry) -> list[str]:
    """List the telling facts with one number per client, the most telling first; layers' only if there are no others.

    Facts that are not of this package's defenses come last.
    """
    names = [name for name, fact in entry["facts"].items() if isinstance(fact, dict) and _is_telling(name)]
    ranks = {name: rank for rank, name in enumerate(FACTS)}
    names = [name for name in names if "." not in name] or names
    return sorted(names, key=lambda name: (name.count("."), ranks.get(name.partition(".")[0], len(ranks)), name))[
        :MAX_FACTS
    ]


def _is_telling(name: str) -> bool:
    meaning = find_meaning(name)
    return meaning is None or bool(meaning.worse)


def read_number(fact: Any, client: str) -> float | None:
    """Return a client's number, or None if it has none."""
    return check_number(fact.get(client)) if isinstance(fact, dict) else None


def check_number(value: Any) -> float | None:
    """Return a value if it is a number that can be shown."""
    return value if isinstance(value, int | float) and abs(value) <= MAX_NUMBER else None


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
    """Return what the suspects of a round are accused of, or nothing if the defense gives no such text."""
    return _read_words(entry["facts"].get(CHARGE_FACT))


def read_ballots(entry: AuditEntry) -> list[Ballot]:
    """Return the ballots of a round, those that charge somebody first."""
    facts = entry["facts"]
    parts = [name.partition(".") for name, fact in facts.items() if not isinstance(fact, dict | list)]
    names = dict.fromkeys(name for first, _, name in parts if first in (WORDS, CLARITY) and name)
    ballots = [
        Ballot(
            name=name,
            words=_read_words(facts.get(f"{WORDS}.{name}")),
            clarity=check_number(facts.get(f"{CLARITY}.{name}")),
            bound=check_number(facts.get(f"{BOUND}.{name}")),
            charged=_read_charged(facts.get(f"{CHARGED}.{name}")),
        )
        for name in names
    ]
    return sorted(ballots, key=lambda ballot: not ballot.charged)[:MAX_BALLOTS]


def _read_words(fact: Any) -> str:
    return escape_text(fact, MAX_CHARGE_CHARS) if isinstance(fact, str) else ""


def _read_charged(fact: Any) -> tuple[str, ...] | None:
    return tuple(client for client, value in fact.items() if value) if isinstance(fact, dict) else None
