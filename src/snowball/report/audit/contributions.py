"""Says who went into each global model, so that one can go back to a model without a client."""

from collections.abc import Sequence
from dataclasses import dataclass

from snowball.records.audit import AuditEntry
from snowball.records.states import is_kept
from snowball.records.text import escape_text
from snowball.report.audit.names import write_name
from snowball.report.audit.prose import MAX_LINE_CHARS
from snowball.report.audit.summary import Audit

SHORT_HASH_CHARS, MAX_HASH_CHARS = 12, 64
"""The characters of a model's hash in a line that has several, and in any other."""


@dataclass(frozen=True)
class Contribution:
    """One round's change of the global model.

    Attributes:
        changed: whether there is a new model.
        contributors: the share of the average of each averaged client; None if the audit does not have it.
        reason: why the old model was kept.
    """

    round: int
    time: str
    changed: bool
    reason: str | None
    model_before: str
    model_after: str
    contributors: dict[str, float | None]


@dataclass(frozen=True)
class Rollback:
    """One client's part in the models since a round.

    Attributes:
        rounds: those in which it went into the model.
        clean_round: the last round after which the model was without it; None if only the one at the start was.
        clean_model: the hash of the last model without it.
        current: whether that is the last model of all.
    """

    client: str
    rounds: list[Contribution]
    clean_round: int | None
    clean_model: str
    current: bool


def list_contributions(audit: Audit, since: int) -> list[Contribution]:
    """List who went into each model from a round on."""
    return list(map(_read_contribution, audit.entries[_find_place(audit, since) :]))


def _find_place(audit: Audit, since: int) -> int:
    """Return the place of the first round that is not before `since`."""
    if not audit.entries or since > max(entry["round"] for entry in audit.entries):
        audit.find_round(since)  # says which rounds there are
    return next(place for place, entry in enumerate(audit.entries) if entry["round"] >= since)


def _read_contribution(entry: AuditEntry) -> Contribution:
    return Contribution(
        round=entry["round"],
        time=entry["time"],
        changed=not is_kept(entry),
        reason=entry["reason"],
        model_before=entry["model_before"],
        model_after=entry["model_after"],
        contributors={client: entry["shares"].get(client) for client in entry["averaged"]},
    )


def find_rollback(audit: Audit, since: int, client: str) -> Rollback:
    """Find the rounds from `since` on in which a client went into the model, and the last model without them.

    A model counts as without the client only if the audit shows that it comes from such a model without the client.
    """
    earlier = audit.entries[: _find_place(audit, since)]
    contributions = list_contributions(audit, since)
    clean_round, clean_model = None, contributions[0].model_before
    clean = {clean_model, *(entry["model_after"] for entry in earlier), *(entry["model_before"] for entry in earlier)}
    clean.discard("")  # not known
    for each in contributions:
        if each.model_before in clean and client not in each.contributors and each.model_after:
            clean.add(each.model_after)
            clean_round, clean_model = each.round, each.model_after
    rounds = [each for each in contributions if client in each.contributors]
    return Rollback(client, rounds, clean_round, clean_model, contributions[-1].model_after in clean)


def write_start(contributions: Sequence[Contribution]) -> str:
    """Say which model the first of these rounds started from."""
    first = contributions[0]
    return f"The model before round {first.round} is {write_hash(first.model_before)}."


def write_contribution(each: Contribution, only: str | None = None) -> str:
    """Write a round's change of the model as one line, with all contributors or with one of them."""
    before, after = (shorten_hash(model) for model in (each.model_before, each.model_after))
    if not each.changed:
        return (
            f"round {each.round}: {before} was kept: {escape_text(each.reason or 'no reason is given', MAX_LINE_CHARS)}"
        )
    named = each.contributors if only is None else {only: each.contributors.get(only)}
    parts = [
        f"{write_name(client)}{'' if share is None else f' {100 * share:.3g} %'}" for client, share in named.items()
    ]
    return f"round {each.round}: {before} to {after}, with {', '.join(parts) or 'nobody'}"


def write_rollback(rollback: Rollback, label: str, since: int) -> str:
    """Say to which model to go back if a client turns out to be hostile."""
    if not rollback.rounds:
        return f"{label} went into no model since round {since}."
    count = len(rollback.rounds)
    said = f"{label} went into the model in {count} round{'s' if count > 1 else ''} since round {since}."
    model = write_hash(rollback.clean_model)
    if rollback.current:
        return f"{said} The current model is without it: {model}."
    which = f"before round {since}" if rollback.clean_round is None else f"after round {rollback.clean_round}"
    return f"{said} The last model without it is the one {which}: {model}."


def write_hash(model: str) -> str:
    """Return a whole hash."""
    return escape_text(model, MAX_HASH_CHARS) or "not known"


def shorten_hash(model: str) -> str:
    """Return the first characters of a hash."""
    return escape_text(model[:SHORT_HASH_CHARS]) or "an unknown model"
