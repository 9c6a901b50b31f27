"""The record of a round: one line of a run's rounds.jsonl."""

from collections.abc import Callable, Iterable
from typing import Any, NotRequired, TypedDict, cast

from snowball.errors import RunError
from snowball.records.checks import (
    is_fraction,
    is_number,
    is_text,
    make_dict_check,
    make_list_check,
    make_optional_check,
)
from snowball.records.files import check_fields, parse_json

PAIRS = ("benign", "between", "infected")
"""The kinds of pairs of updates: both benign, one of them infected, both infected."""

TOP_DOWN = "top_down"
"""The name of a top-down election's time in a round's seconds; the number of a member may follow a dot."""

ADAPTATION = "attack"
"""The name in a round's seconds of the time in which an attack adapted, before the clients trained."""

CODES = ("code.first", "code.second")
"""The facts that locate each participant in a VAE's latent space, along the two directions of largest variance."""


class RoundRecord(TypedDict):
    """A round as plain JSON.

    Accuracies and rates are fractions, or None if there is nothing to measure. Lists have one entry per participant.

    Attributes:
        round: from 1.
        participants: client ids.
        seconds: of the stages train, defense and evaluate, and of parts of them; also of attack, if the attack adapts
            before the clients train.
        facts: the defense's evidence by name: a number, or a list; empty if the line has none.
        map: [x, y] of each update, in two dimensions; None if the line has none.
        distances: the mean distance between two updates by kind of pair, one of `PAIRS`; None if there is no such pair.
        dropped: {client: reason} of the participants that the defense was not given, the reason a key of
            `snowball.records.audit.REASONS`; they are not elected, and None in facts and map. Only in such rounds.
            It is "error" for a client that sent no reply.
        kept: why the global model stays unchanged, with nobody elected. Only in such rounds.
    """

    round: int
    participants: list[str]
    malicious: list[bool]
    elected: list[bool]
    main_accuracy: float | None
    backdoor_accuracy: float | None
    false_positive_rate: float | None
    false_negative_rate: float | None
    seconds: dict[str, float]
    facts: dict[str, Any]
    map: list[list[float | None] | None] | None
    distances: dict[str, float | None] | None
    dropped: NotRequired[dict[str, str]]
    kept: NotRequired[str]


def compute_error_rates(malicious: Iterable[bool], elected: Iterable[bool]) -> tuple[float | None, float | None]:
    """Return the share of infected that are elected and of benign that are left out; None if there are none of them."""
    counts = {(bad, chosen): 0 for bad in (True, False) for chosen in (True, False)}
    for bad, chosen in zip(malicious, elected, strict=True):
        counts[bool(bad), bool(chosen)] += 1
    infected, benign = counts[True, True] + counts[True, False], counts[False, True] + counts[False, False]
    return (
        counts[True, True] / infected if infected else None,
        counts[False, False] / benign if benign else None,
    )


def parse_round(line: bytes, where: str) -> RoundRecord:
    """Parse a line of rounds.jsonl; errors name `where`."""
    fault = f"{where} is not a round's record"
    record = check_fields(parse_json(line, where), FIELDS, fault, OPTIONAL)
    check_fields(record, {name: fits for name, fits in RARE.items() if name in record}, fault)
    for name in PARALLEL:
        if record[name] is not None and len(record[name]) != len(record["participants"]):
            counts = f"{len(record['participants'])} participants and {len(record[name])} of {name!r}"
            raise RunError(f"{fault}: it has {counts}")
    return cast(RoundRecord, record)


def _is_point(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and len(value) == 2 and all(entry is None or is_number(entry) for entry in value)
    )


def _are_distances(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == set(PAIRS)
        and all(entry is None or (is_number(entry) and entry >= 0) for entry in value.values())
    )


FIELDS: dict[str, Callable[[Any], bool]] = {
    "round": lambda value: isinstance(value, int) and value >= 1,
    "participants": make_list_check(str),
    "malicious": make_list_check(bool),
    "elected": make_list_check(bool),
    "main_accuracy": is_fraction,
    "backdoor_accuracy": is_fraction,
    "false_positive_rate": is_fraction,
    "false_negative_rate": is_fraction,
    "seconds": make_dict_check(is_number),
    "facts": lambda value: isinstance(value, dict),
    "map": make_optional_check(lambda value: isinstance(value, list) and all(map(_is_point, value))),
    "distances": make_optional_check(_are_distances),
}
"""The fields of a record, and the check of each."""

OPTIONAL: dict[str, Any] = {"facts": {}, "map": None, "distances": None}
"""The values of fields that a record may leave out."""

RARE: dict[str, Callable[[Any], bool]] = {"dropped": make_dict_check(is_text), "kept": is_text}
"""The fields that only the records of some rounds have, and the check of each."""

PARALLEL = ("malicious", "elected", "map")
"""Fields with one entry per participant."""
