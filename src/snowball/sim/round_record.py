"""Record of one round: who took part, who was elected, and the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.defenses.ops import compute_squared_distances, project_rows
from snowball.records.rounds import PAIRS, compute_error_rates
from snowball.server import Outcome
from snowball.updates import Updates

TIME_PREFIX = "seconds."
"""Prefix of the facts that are times."""


FAILED = "error"
"""The reason in a record for a client that sent no reply; a key of `snowball.records.audit.REASONS`."""

NOBODY_REPLIED = "no client replied"
"""Why the global model stays as it was in a round in which all clients failed."""


def describe_election(
    malicious: Mapping[str, bool], outcome: Outcome | None, failed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the part of a round's record that says who took part, who was elected, and why.

    `failed` are the clients that sent no reply; there is no outcome if all of them failed.
    """
    record = describe_judgement(malicious, outcome) if outcome else describe_silence(malicious)
    faults = dict.fromkeys(failed, FAILED)
    if outcome:
        faults |= {fault.client: fault.reason for fault in outcome.dropped}
    if faults:
        record["dropped"] = {client: faults[client] for client in malicious if client in faults}
    kept = outcome.kept if outcome else NOBODY_REPLIED
    return record if kept is None else record | {"kept": kept}


def describe_silence(malicious: Mapping[str, bool]) -> dict[str, Any]:
    """Describe a round in which nobody replied."""
    infected, elected = list(malicious.values()), [False] * len(malicious)
    false_positive_rate, false_negative_rate = compute_error_rates(infected, elected)
    return {
        "participants": list(malicious),
        "malicious": infected,
        "elected": elected,
        "false_positive_rate": false_positive_rate,
        "false_negative_rate": false_negative_rate,
        "facts": {},
        "map": [None] * len(malicious),
        "distances": dict.fromkeys(PAIRS),
    }


def describe_judgement(malicious: Mapping[str, bool], outcome: Outcome) -> dict[str, Any]:
    """Describe the updates that the defense judged, and its verdict."""
    updates = outcome.updates
    present = [client for client in malicious if client in updates.clients]
    slots = [updates.clients.index(client) for client in present]
    products = updates.products()[slots][:, slots]
    infected = list(malicious.values())
    elected = align_rows(updates.clients, outcome.elected.tolist(), malicious, False)
    false_positive_rate, false_negative_rate = compute_error_rates(infected, elected)
    return {
        "participants": list(malicious),
        "malicious": infected,
        "elected": elected,
        "false_positive_rate": false_positive_rate,
        "false_negative_rate": false_negative_rate,
        "facts": {
            name: align_fact(updates, fact, malicious)
            for name, fact in outcome.facts.items()
            if not name.startswith(TIME_PREFIX)
        },
        "map": align_rows(present, project_rows(products).tolist(), malicious),
        "distances": measure_distances(products, [malicious[client] for client in present]),
    }


def align_rows(
    clients: Sequence[str], values: Sequence[Any], participants: Iterable[str], absent: Any = None
) -> list[Any]:
    """Return one value per participant: that of its update, or `absent` if it was dropped."""
    known = dict(zip(clients, values, strict=True))
    return [known.get(client, absent) for client in participants]


def align_fact(updates: Updates, fact: Any, participants: Iterable[str]) -> Any:
    """Convert a fact to JSON; one with a value per update gets a value per participant."""
    is_column = isinstance(fact, Tensor) and fact.shape == (len(updates),)
    return align_rows(updates.clients, fact.tolist(), participants) if is_column else convert_fact(fact)


def extract_times(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the times that a defense reports, by name without their prefix."""
    named = {name: float(fact) for name, fact in facts.items() if name.startswith(TIME_PREFIX)}
    return {name.removeprefix(TIME_PREFIX): value for name, value in named.items()}


def convert_fact(fact: Any) -> Any:
    """Convert a fact to JSON."""
    return fact.tolist() if isinstance(fact, Tensor) else fact


def measure_distances(products: Tensor, malicious: Sequence[bool]) -> dict[str, float]:
    """Return the mean distance between rows of each kind, given inner products (n, n); NaN without two such rows."""
    first, second = torch.triu_indices(len(products), len(products), 1)
    apart = compute_squared_distances(products)[first, second].sqrt()  # (pairs,)
    infected = torch.tensor(malicious).long()
    kinds = infected[first] + infected[second]
    return {name: float(apart[kinds == kind].mean()) for kind, name in enumerate(PAIRS)}
