"""Clients over all rounds: how often they were elected, and why not."""

from typing import Any

from snowball.records.rounds import RoundRecord
from snowball.report.clients import ClientSummary, summarise_clients


def record(elected: str, infected: str = "", clients: str = "abcd", **changes: Any) -> RoundRecord:
    """A round of clients with one letter each."""
    return {
        "round": 1, "participants": list(clients), "malicious": [each in infected for each in clients],
        "elected": [each in elected for each in clients], "main_accuracy": 0.5, "backdoor_accuracy": None,
        "false_positive_rate": None, "false_negative_rate": None, "seconds": {}, "facts": {}, "map": None,
        "distances": None, **changes,
    }  # fmt: skip


def by_name(*records: RoundRecord) -> dict[str, ClientSummary]:
    return {summary.client: summary for summary in summarise_clients(records)}


def test_infected_clients_come_first_then_those_left_out_most() -> None:
    rounds = [record("ab", "d"), record("ab", "d"), record("abc", clients="abc"), record("", clients="ab")]
    assert [summary.client for summary in summarise_clients(rounds)] == ["d", "c", "a", "b"]


def test_rounds_are_counted() -> None:
    clients = by_name(record("ad", "d"), record("a", "d"), record("ad", clients="ad"))
    bad = clients["d"]
    assert (bad.rounds, bad.infected, bad.elected, bad.left_out, bad.infected_elected) == (3, 2, 2, 1, 1)
    assert (clients["a"].left_out, clients["a"].reason) == (0, "")


def test_the_reason_compares_a_number_with_those_of_the_elected() -> None:
    facts = {"clarity": [1.0] * 4, "votes": [70.0, 69.0, 69.5, 8.0]}
    clients = by_name(record("ab", "d", facts=facts))
    assert clients["d"].reason == "votes 8, elected: 69 or more"
    assert clients["c"].reason == "votes like those of the elected, no seat left"
    assert by_name(record("ab", facts={"scores": [1, 2, None, 9]}))["d"].reason == "scores 9, elected: 2 or less"


def test_a_charge_and_a_drop_are_reasons() -> None:
    charged = record("abc", "d", facts={"charge": "they share one direction in fc1", "suspicion": [0.0, 0.1, 0.2, 5.0]})
    dropped = record("abc", "d", dropped={"d": "not-finite"})
    assert by_name(charged)["d"].reason == "charged: they share one direction in fc1"
    assert by_name(dropped)["d"].reason == "dropped: not-finite"
    assert by_name(dropped, dropped, charged)["d"].reason == "dropped: not-finite (2 of 3)"


def test_without_evidence_the_reason_says_so() -> None:
    for facts in ({}, {"votes": [1.0]}, {"votes": ["a", "b", "c", "d"]}, {"votes": [None] * 4}, {"charge": 7}):
        assert by_name(record("abc", facts=facts))["d"].reason == "no reason on record"
    assert by_name(record("", facts={"votes": [1, 2, 3, 4]}))["d"].reason == "no reason on record"
