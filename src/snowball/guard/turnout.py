"""Decides whether enough clients answered: with too few, an attacker decides the round and no defense can help.

Every defense here needs a majority of honest replies. A site that is down costs honest ones, an attacker's never: if
half of the sites must answer, attackers who run up to a quarter of them stay a minority of the replies, whoever else is
silent. A lower share lets them win by waiting for an outage, or by causing one; a higher one lets a few dead sites stop
the training.
"""

from collections.abc import Collection
from math import ceil

from snowball.defenses.base import Defense, find_min_updates
from snowball.defenses.ops import count_rows
from snowball.records.audit import LOW_TURNOUT

MIN_ANSWERS = 0.5
"""The default share of those asked that must send a valid reply."""


def explain_low_turnout(valid: int, asked: Collection[str] | None, min_answers: float, defense: Defense) -> str | None:
    """Say why a round has too few valid replies; None if it has enough."""
    if asked is not None and valid < (needed := count_rows(float(min_answers), len(asked), ceil)):
        return f"{LOW_TURNOUT}: {valid} of {len(asked)} asked sent a valid reply, and {needed} are needed"
    if valid < (needed := find_min_updates(defense)):
        name = type(defense).__name__
        return f"{LOW_TURNOUT}: {name} cannot tell one reply from the others below {needed}, and {valid} are valid"
    return None
