"""Record of one round: who took part, who was elected, and the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.defenses.ops import main_directions, squared_distances
from snowball.records.rounds import PAIRS, compute_error_rates
from snowball.server import Outcome
from snowball.updates import Updates

TIMES = "seconds."
"""What the names of a defense's times start with."""


def election(malicious: Mapping[str, bool], outcome: Outcome) -> dict[str, Any]:
    """Who was there, who was elected, and why."""
    updates = outcome.updates
    present = [client for client in malicious if client in updates.clients]
    slots = [updates.clients.index(client) for client in present]
    products = updates.products()[slots][:, slots]
    infected = list(malicious.values())
    elected = align_rows(updates.clients, outcome.elected.tolist(), malicious, False)
    false_positive_rate, false_negative_rate = compute_error_rates(infected, elected)
    record: dict[str, Any] = {
        "participants": list(malicious),
        "malicious": infected,
        "elected": elected,
        "false_positive_rate": false_positive_rate,
        "false_negative_rate": false_negative_rate,
        "facts": {
            name: align_fact(updates, fact, malicious)
            for name, fact in outcome.facts.items()
            if not name.startswith(TIMES)
        },
        "map": align_rows(present, main_directions(products).tolist(), malicious),
        "distances": distances(products, [malicious[client] for client in present]),
    }
    if outcome.dropped:
        record["dropped"] = {fault.client: fault.reason for fault in outcome.dropped}
    if outcome.kept is not None:
        record["kept"] = outcome.kept
    return record


def align_rows(
    clients: Sequence[str], values: Sequence[Any], participants: Iterable[str], absent: Any = None
) -> list[Any]:
    """Put a value per client in the order of all participants."""
    known = dict(zip(clients, values, strict=True))
    return [known.get(client, absent) for client in participants]


def align_fact(updates: Updates, fact: Any, participants: Iterable[str]) -> Any:
    """A fact as JSON knows it; one with a value an update has a value a participant."""
    is_column = isinstance(fact, Tensor) and fact.shape == (len(updates),)
    return align_rows(updates.clients, fact.tolist(), participants) if is_column else plain(fact)


def times(facts: Mapping[str, Any]) -> dict[str, float]:
    """What the defense says of its own time."""
    named = {name: float(fact) for name, fact in facts.items() if name.startswith(TIMES)}
    return {name.removeprefix(TIMES): value for name, value in named.items()}


def plain(fact: Any) -> Any:
    """A fact as JSON knows it."""
    return fact.tolist() if isinstance(fact, Tensor) else fact


def distances(products: Tensor, malicious: Sequence[bool]) -> dict[str, float]:
    """The mean distance between two rows of each kind, from their inner products (n, n); NaN where there are no two."""
    first, second = torch.triu_indices(len(products), len(products), 1)
    apart = squared_distances(products)[first, second].sqrt()  # (pairs,)
    infected = torch.tensor(malicious).long()
    kinds = infected[first] + infected[second]
    return {name: float(apart[kinds == kind].mean()) for kind, name in enumerate(PAIRS)}
