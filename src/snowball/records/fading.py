"""How a backdoor fades after the attack has stopped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

from snowball.records.checks import is_fraction
from snowball.records.rounds import RoundRecord

LATER_ROUNDS = 10
"""Rounds after the stop in which the backdoor is measured again."""

MAX_ROUNDS = 10**9
"""The most rounds that a file may speak of."""


@final
@dataclass(frozen=True)
class Fading:
    """The backdoor when the attack stopped, and afterwards.

    Attributes:
        stop: the last round in which an infected update arrived.
        backdoor_accuracy: the backdoor accuracy of that round.
        later_backdoor_accuracy: that of the round `LATER_ROUNDS` later; None if there is none.
        half_rounds: rounds from the stop to the first in which the backdoor accuracy is below half of what it was; None
            if there is none.
    """

    stop: int
    backdoor_accuracy: float
    later_backdoor_accuracy: float | None
    half_rounds: int | None

    @classmethod
    def parse(cls, content: Mapping[str, Any] | None) -> Self | None:
        """Parse the part of a summary that `is_fading` has checked."""
        return None if content is None else cls(**{name: content[name] for name in cls.__dataclass_fields__})


def measure_fading(rounds: Sequence[RoundRecord]) -> Fading | None:
    """Measure how the backdoor fades; None if nobody attacked, or rounds without an attack do not follow."""
    stop = max((record["round"] for record in rounds if any(record["malicious"])), default=None)
    measured = {record["round"]: record["backdoor_accuracy"] for record in rounds}
    if stop is None or stop == max(measured) or (before := measured[stop]) is None:
        return None
    faded = (number for number, each in sorted(measured.items()) if number > stop and is_below(each, before / 2))
    first = next(faded, None)
    return Fading(stop, before, measured.get(stop + LATER_ROUNDS), None if first is None else first - stop)


def is_below(accuracy: float | None, bound: float) -> bool:
    """Return whether a backdoor accuracy was measured and is below a bound."""
    return accuracy is not None and accuracy < bound


def is_fading(value: Any) -> bool:
    """Return whether a part of a summary describes how a backdoor fades, or is None."""
    if value is None:
        return True
    if not isinstance(value, dict) or not Fading.__dataclass_fields__.keys() <= value.keys():
        return False
    stop, half, before = value["stop"], value["half_rounds"], value["backdoor_accuracy"]
    fits = is_round(stop) and (half is None or is_round(half))
    return fits and before is not None and all(map(is_fraction, (before, value["later_backdoor_accuracy"])))


def is_round(value: Any) -> bool:
    """Return whether a value can be the number of a round, or of rounds."""
    return type(value) is int and 0 < value <= MAX_ROUNDS
