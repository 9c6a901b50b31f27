from dataclasses import replace

import pytest

from snowball.report import Row, write_headline, write_prose
from snowball.report.prose import classify_outcome, describe_exceptions

SAFE = Row("snowball", "snowball", 20, True, 18, 0.9, 0.02, 0.89, 0.025, 0.005, 0.25, 100.0)
FOOLED = replace(
    SAFE,
    name="fedavg",
    best_backdoor_accuracy=0.96,
    last_backdoor_accuracy=0.97,
    false_positive_rate=1.0,
    false_negative_rate=0.0,
)
CLEAN = replace(
    SAFE,
    name="clean",
    best_backdoor_accuracy=None,
    last_backdoor_accuracy=None,
    false_positive_rate=None,
    false_negative_rate=0.0,
)
EMPTY = replace(CLEAN, name="empty", best_main_accuracy=None, last_main_accuracy=None)


@pytest.mark.parametrize(
    ("main", "backdoor", "key"),
    [(0.9, 0.5, "in"), (0.9, 0.49, "partly"), (0.9, 0.2, "out"), (0.9, None, "none"), (None, None, "empty")],
)
def test_outcomes(main: float | None, backdoor: float | None, key: str) -> None:
    assert classify_outcome(main, backdoor) == key


def test_the_worst_comes_first() -> None:
    assert write_headline([SAFE, FOOLED]) == "fedavg let the backdoor in; snowball kept the backdoor out."
    assert write_headline([CLEAN]) == "clean trained without an attack."


def test_a_few_runs_get_a_sentence_each() -> None:
    assert write_prose([FOOLED, SAFE]) == (
        "The last model of fedavg is right on 89% of clean samples and does as the attacker likes with 97% of "
        "triggered ones; it used 100% of infected updates and left out none of the benign ones. "
        "The last model of snowball is right on 89% of clean samples and does as the attacker likes with 2.5% of "
        "triggered ones; it used 0.5% of infected updates and left out 25% of the benign ones."
    )


def test_runs_without_an_attack_or_a_round_make_sense() -> None:
    assert (
        write_prose([CLEAN, EMPTY])
        == "The last model of clean is right on 89% of clean samples. empty has no round to show yet."
    )


def test_a_late_failure_is_not_hidden_by_the_best_round() -> None:
    late = replace(SAFE, last_backdoor_accuracy=0.8)
    assert write_headline([late]) == "snowball let the backdoor in."
    assert write_prose([late]).endswith("In its best round, 18, the trigger worked on 2.0%.")


def test_many_runs_are_counted() -> None:
    runs = [replace(SAFE, name=f"s{index}", last_backdoor_accuracy=index / 100) for index in range(6)] + [FOOLED]
    assert write_headline(runs) == "1 of 7 runs let the backdoor in; 6 of 7 runs kept the backdoor out."
    assert write_prose(runs) == (
        "fedavg let the backdoor in (main accuracy 89%, backdoor 97%). "
        "s0, s1, s2 and 3 more kept the backdoor out (main accuracy 89%, backdoor 0% to 5.0%)."
    )


def test_who_was_dropped_is_said_with_the_reasons() -> None:
    dropped = {"7": {"not-finite": 2}, "9": {"not-finite": 1}}
    words = "Dropped: 7 (2 × not-finite) and 9 (1 × not-finite). The model stayed as it was in round 3."  # noqa: RUF001
    assert write_prose([replace(SAFE, dropped=dropped, kept=[3])]).endswith(words)
    assert describe_exceptions(SAFE) == ""


def test_of_many_that_were_dropped_a_few_are_named() -> None:
    row = replace(SAFE, dropped={str(number): {"not-finite": 1} for number in range(50)})
    assert describe_exceptions(row).endswith("2 (1 × not-finite) and 47 more.")  # noqa: RUF001
