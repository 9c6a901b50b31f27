from dataclasses import replace
from pathlib import Path

import pytest

from snowball.records.fading import Fading
from snowball.report import Row, write_headline, write_prose
from snowball.report.outcomes import Outcome
from snowball.report.prose import OUTCOMES, describe_exceptions, describe_fading, describe_outcome
from snowball.report.runs import Point


def make_points(backdoor: float | None, averaged: int, infected: int = 10, rounds: int = 20) -> list[Point]:
    return [Point(round, 0.9, backdoor, 50, 25, infected, averaged) for round in range(1, rounds + 1)]


SAFE = Row(
    "snowball", "snowball", 20, True, 18, 0.9, 0.02, 0.89, 0.025, 0.005, 0.25, 100.0, points=make_points(0.025, 0)
)
FOOLED = replace(
    SAFE,
    name="fedavg",
    defense="fedavg",
    best_backdoor_accuracy=0.96,
    last_backdoor_accuracy=0.97,
    false_positive_rate=1.0,
    false_negative_rate=0.0,
    points=make_points(0.97, 10),
)
CLEAN = replace(
    SAFE,
    name="clean",
    best_backdoor_accuracy=None,
    last_backdoor_accuracy=None,
    false_positive_rate=None,
    false_negative_rate=0.0,
    points=make_points(None, 0, infected=0),
)
EMPTY = replace(CLEAN, name="empty", best_main_accuracy=None, last_main_accuracy=None, points=())
YOUNG = replace(FOOLED, name="fa3", last_backdoor_accuracy=0.05, points=make_points(0.05, 10, rounds=3))

SENTENCES = {
    Outcome("in", since=9): "lost to the backdoor in round 9 (1 of 200 infected updates averaged)",
    Outcome("partly"): (
        "lost to the backdoor in part: the trigger works on 35% of samples (1 of 200 infected updates averaged)"
    ),
    Outcome("gone", since=4, until=12): (
        "recovered from the backdoor in round 12, having lost to it in round 4 (1 of 200 infected updates averaged)"
    ),
    Outcome("low"): "averaged 1 of 200 infected updates, but the backdoor has not taken hold yet",
    Outcome("low", reason="alone"): (
        "averaged 1 of 200 infected updates, but the backdoor has not taken hold yet, and no fedavg run beside it "
        "shows that the attack works"
    ),
    Outcome("low", reason="harmless"): (
        "averaged 1 of 200 infected updates, but the backdoor has not taken hold yet, nor had it with fedavg by then"
    ),
    Outcome("unclear", reason="short"): (
        "cannot be judged after only 20 attacked rounds (1 of 200 infected updates averaged)"
    ),
    Outcome("unclear", reason="harmless"): (
        "cannot be judged: fedavg had not learned the backdoor by then either (1 of 200 infected updates averaged)"
    ),
    Outcome("unclear", reason="untrained"): (
        "cannot be judged: its model is right on only 89% of clean samples (1 of 200 infected updates averaged)"
    ),
    Outcome("out"): (
        "held: the backdoor stayed out though its model errs on 35% of triggered samples "
        "(1 of 200 infected updates averaged)"
    ),
    Outcome("damage"): "met an attack without a backdoor (1 of 200 infected updates averaged)",
    Outcome("empty"): "finished no round yet",
}


@pytest.mark.parametrize(
    ("outcome", "words"), SENTENCES.items(), ids=[f"{each.key}-{each.reason}" for each in SENTENCES]
)
def test_an_outcome_in_words(outcome: Outcome, words: str) -> None:
    points = [replace(SAFE.points[0], averaged=1), *SAFE.points[1:]]
    assert describe_outcome(replace(SAFE, last_backdoor_accuracy=0.35, points=points), outcome) == words


def test_the_page_about_reports_has_every_outcome() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    assert [words for words in OUTCOMES.values() if f"| {words}" not in page and f"short: {words}" not in page] == []


def test_held_is_said_with_its_limits() -> None:
    counted = "(none of 200 infected updates averaged)"
    assert describe_outcome(SAFE, Outcome("out")) == f"held: the backdoor stayed out {counted}"
    running = replace(SAFE, finished=False)
    assert describe_outcome(running, Outcome("out")) == f"held: the backdoor stayed out so far {counted}"
    assert describe_outcome(SAFE, Outcome("out", reason="averaged")) == f"held where fedavg did not {counted}"


def test_runs_without_an_infected_update_count_none() -> None:
    assert describe_outcome(CLEAN, Outcome("none")) == "trained without an attack"
    assert describe_outcome(CLEAN, Outcome("none", reason="waiting")) == "trained without an attack so far"


def test_one_update_and_one_round_are_singular() -> None:
    row = replace(SAFE, points=make_points(0.0, 0, infected=1, rounds=1))
    words = "cannot be judged after only 1 attacked round (none of 1 infected update averaged)"
    assert describe_outcome(row, Outcome("unclear", reason="short")) == words


def test_the_worst_comes_first() -> None:
    assert write_headline([SAFE, FOOLED]) == (
        "fedavg lost to the backdoor in round 1 (all 200 infected updates averaged); "
        "snowball held: the backdoor stayed out (none of 200 infected updates averaged)."
    )


def test_fedavg_that_has_averaged_everything_did_not_hold() -> None:
    words = "averaged all 30 infected updates, but the backdoor has not taken hold yet."
    assert write_headline([YOUNG]) == f"fedavg {words}"


def test_of_more_than_two_runs_the_numbers_are_left_to_the_table() -> None:
    dnc = replace(SAFE, name="dnc-1", defense="dnc")
    assert write_headline([SAFE, FOOLED, dnc]) == ("fedavg lost to the backdoor in round 1; snowball and dnc held.")


def test_runs_that_share_a_defense_are_named() -> None:
    again = replace(FOOLED, name="again")
    assert write_headline([FOOLED, again, YOUNG]) == (
        "fedavg and fedavg (again) lost to the backdoor in round 1; fedavg (fa3) let attackers in but did not lose yet."
    )
    assert write_headline([replace(CLEAN, defense="–")]) == "clean trained without an attack."  # noqa: RUF001


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
    assert write_prose([late]).endswith("In its best round, 18, the trigger worked on 2.0%.")


def test_many_runs_are_counted_by_defense() -> None:
    runs = [replace(SAFE, name=f"s{index}", last_backdoor_accuracy=index / 100) for index in range(6)]
    few = [*runs[:5], replace(runs[5], points=make_points(0.0, 0, rounds=3)), replace(FOOLED, conditions="other")]
    assert write_headline(few) == ("snowball: 1 of 6 cannot be judged, 5 held; fedavg: 1 of 1 lost to the backdoor.")
    assert write_prose([*runs, FOOLED]) == (
        "fedavg lost to the backdoor (main accuracy 89%, backdoor 97%). "
        "s0, s1, s2 and 3 more held (main accuracy 89%, backdoor 0% to 5.0%)."
    )


def test_runs_of_many_defenses_are_counted_together() -> None:
    runs = [replace(SAFE, name=f"{index}", defense=f"d{index}") for index in range(5)]
    assert write_headline([*runs, YOUNG, replace(FOOLED, name="again")]) == (
        "1 of 7 runs lost to the backdoor; 1 of 7 runs let attackers in but did not lose yet; 5 of 7 runs held."
    )


def test_who_was_dropped_is_said_with_the_reasons() -> None:
    dropped = {"7": {"not-finite": 2}, "9": {"not-finite": 1}}
    words = "Dropped: 7 (2 × not-finite) and 9 (1 × not-finite). The model stayed as it was in round 3."  # noqa: RUF001
    assert write_prose([replace(SAFE, dropped=dropped, kept=[3])]).endswith(words)
    assert describe_exceptions(SAFE) == ""


def test_how_a_backdoor_fades_is_said() -> None:
    assert describe_fading(SAFE) == ""
    row = replace(FOOLED, last_backdoor_accuracy=0.31, fading=Fading(9, 0.97, 0.42, 7))
    words = (
        "The attack stopped in round 9, when the trigger worked on 97%, on 42% 10 rounds later, on 31% in the last "
        "round; it fell below half of that after 7 rounds."
    )
    assert describe_fading(row) == words
    assert write_prose([row]).endswith(words)
    short = replace(row, fading=Fading(18, 0.97, None, None))
    assert describe_fading(short) == (
        "The attack stopped in round 18, when the trigger worked on 97%, on 31% in the last round; it did not fall "
        "below half of that."
    )
    assert describe_fading(replace(row, fading=Fading(9, 0.97, None, 1))).endswith("after 1 round.")


def test_of_many_that_were_dropped_a_few_are_named() -> None:
    row = replace(SAFE, dropped={str(number): {"not-finite": 1} for number in range(50)})
    assert describe_exceptions(row).endswith("2 (1 × not-finite) and 47 more.")  # noqa: RUF001
