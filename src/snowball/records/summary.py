"""The summary of a run, summary.json: its best round, its last round, and its elections over all rounds."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, final

from snowball.records.checks import is_between, is_fraction, make_dict_check
from snowball.records.fading import Fading, is_fading, measure_fading
from snowball.records.files import check_fields
from snowball.records.rounds import TOP_DOWN, RoundRecord, compute_error_rates

MAX_SECONDS = 1e9
"""The longest time that is accepted."""


@final
@dataclass(frozen=True)
class RoundScores:
    """The accuracies of one round, as fractions; None if there is nothing to measure."""

    round: int
    main_accuracy: float | None
    backdoor_accuracy: float | None


@final
@dataclass(frozen=True)
class TopDownErrors:
    """The error rates of the rounds with a top-down election, and how many there are."""

    rounds: int | None
    false_positive_rate: float | None
    false_negative_rate: float | None


@dataclass(frozen=True)
class Summary:
    """A run's headline; the fields are those of the file, in its order.

    Attributes:
        best: the round of the best main accuracy, and the backdoor accuracy of that round; None if none was evaluated.
        last: the last round that was evaluated.
        false_positive_rate: share of the infected that is elected, over all rounds.
        false_negative_rate: share of the benign that is left out, over all rounds.
        top_down: None if no round has a top-down election.
        seconds: total time, by stage and part of a stage.
        dropped: how often each client was dropped, by reason; only in the file if there are any.
        kept: the rounds that left the global model unchanged; only in the file if there are any.
        fading: how the backdoor fades after the attack has stopped; only in the file if it stops before the last round.
    """

    best: RoundScores | None
    last: RoundScores | None
    false_positive_rate: float | None
    false_negative_rate: float | None
    top_down: TopDownErrors | None
    seconds: dict[str, float]
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    kept: Sequence[int] = ()
    fading: Fading | None = None

    @classmethod
    def parse(cls, content: Any, fault: str) -> Self:
        """Parse the content of summary.json, or raise `fault`; earlier versions wrote no `top_down`."""
        fields = check_fields(content, FIELDS, fault, OPTIONAL)
        return cls(
            best=_parse_scores(fields["best"]),
            last=_parse_scores(fields["last"]),
            false_positive_rate=fields["false_positive_rate"],
            false_negative_rate=fields["false_negative_rate"],
            top_down=_parse_errors(fields["top_down"]),
            seconds=fields["seconds"],
            dropped=fields["dropped"],
            kept=fields["kept"],
            fading=Fading.parse(fields["fading"]),
        )

    def plain(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {name: value for name, value in asdict(self).items() if value or name not in RARE}


def summarise_rounds(rounds: Sequence[RoundRecord]) -> Summary:
    """Summarise the rounds of a run."""
    evaluated = [record for record in rounds if record["main_accuracy"] is not None]
    grown = [record for record in rounds if has_top_down(record)]
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    for record in rounds:
        for client, reason in record.get("dropped", {}).items():
            dropped[client][reason] += 1
    best = max(evaluated, key=lambda record: record["main_accuracy"] or 0.0, default=None)
    return Summary(
        _parse_scores(best),
        _parse_scores(evaluated[-1] if evaluated else None),
        *_pool_error_rates(rounds),
        top_down=TopDownErrors(len(grown), *_pool_error_rates(grown)) if grown else None,
        seconds=_total_seconds(rounds),
        dropped={client: dict(reasons) for client, reasons in dropped.items()},
        kept=[record["round"] for record in rounds if record.get("kept") is not None],
        fading=measure_fading(rounds),
    )


def has_top_down(record: RoundRecord) -> bool:
    """Whether a round has a top-down election, even if only in a member of an intersection: its time is on record."""
    return any(name.partition(".")[0] == TOP_DOWN for name in record["seconds"])


def _pool_error_rates(rounds: Sequence[RoundRecord]) -> tuple[float | None, float | None]:
    """Return the error rates of all the elections of these rounds together."""
    return compute_error_rates(
        (bad for record in rounds for bad in record["malicious"]),
        (chosen for record in rounds for chosen in record["elected"]),
    )


def _total_seconds(rounds: Sequence[RoundRecord]) -> dict[str, float]:
    names = sorted({name for record in rounds for name in record["seconds"]})
    return {name: math.fsum(record["seconds"].get(name, 0.0) for record in rounds) for name in names}


def _parse_scores(scores: Mapping[str, Any] | None) -> RoundScores | None:
    if scores is None:
        return None
    return RoundScores(scores["round"], scores["main_accuracy"], scores["backdoor_accuracy"])


def _parse_errors(errors: Mapping[str, Any] | None) -> TopDownErrors | None:
    if errors is None:
        return None
    return TopDownErrors(errors.get("rounds"), errors["false_positive_rate"], errors["false_negative_rate"])


def _are_scores(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict)
        and isinstance(value.get("round"), int)
        and _has_fractions(value, "main_accuracy", "backdoor_accuracy")
    )


def _are_errors(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and _has_fractions(value, "false_positive_rate", "false_negative_rate")
    )


def _has_fractions(value: dict[str, Any], *names: str) -> bool:
    return all(name in value and is_fraction(value[name]) for name in names)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "best": _are_scores,
    "last": _are_scores,
    "false_positive_rate": is_fraction,
    "false_negative_rate": is_fraction,
    "top_down": _are_errors,
    "seconds": make_dict_check(lambda time: is_between(time, MAX_SECONDS)),
    "dropped": make_dict_check(make_dict_check(lambda count: type(count) is int and count > 0)),
    "kept": lambda value: isinstance(value, list) and all(type(round) is int for round in value),
    "fading": is_fading,
}
"""The fields of a summary, and the check of each."""

RARE: dict[str, Any] = {"dropped": {}, "kept": [], "fading": None}
"""The fields that are only in the file if they say something, and the values that say nothing."""

OPTIONAL: dict[str, Any] = {"top_down": None, **RARE}
"""The values of fields that a summary may leave out."""
