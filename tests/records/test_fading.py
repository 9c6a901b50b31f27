from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowball.errors import RunError
from snowball.records.fading import LATER_ROUNDS, Fading, measure_fading
from snowball.records.rounds import RoundRecord
from snowball.records.summary import Summary, summarise_rounds

Rounds = list[RoundRecord]


def make_rounds(backdoors: Sequence[float | None], attacked: Sequence[int]) -> Rounds:
    """Rounds with these backdoor accuracies, an infected update in the attacked ones, counted from 1."""
    rounds = [
        {
            "round": number,
            "participants": ["a", "b"],
            "malicious": [number in attacked, False],
            "elected": [True, True],
            "main_accuracy": 0.9,
            "backdoor_accuracy": backdoor,
            "seconds": {},
        }
        for number, backdoor in enumerate(backdoors, start=1)
    ]
    return cast(Rounds, rounds)


def test_fading_by_hand() -> None:
    backdoors = [0.2, 0.9, 0.8, 0.6, 0.41, 0.4, 0.39, 0.5, 0.3, 0.2, 0.2, 0.1, 0.05, 0.0]
    assert measure_fading(make_rounds(backdoors, [1, 3])) == Fading(3, 0.8, 0.05, 4)  # 0.39 in round 7
    assert measure_fading(make_rounds(backdoors[:12], [3])) == Fading(3, 0.8, None, 4)
    assert measure_fading(make_rounds(backdoors[:6], [3])) == Fading(3, 0.8, None, None)  # exactly half is not below


@pytest.mark.parametrize("attacked", [[], [5], [1, 5]])
def test_without_rounds_after_an_attack_there_is_nothing_to_measure(attacked: list[int]) -> None:
    rounds = make_rounds([0.5] * 5, attacked)
    assert measure_fading(rounds) is None
    assert "fading" not in summarise_rounds(rounds).plain()


def test_rounds_that_were_not_evaluated_do_not_count() -> None:
    assert measure_fading(make_rounds([0.9, None, 0.1], [2])) is None
    assert measure_fading(make_rounds([0.9, None, 0.1], [1])) == Fading(1, 0.9, None, 2)
    assert measure_fading([]) is None


def test_a_backdoor_that_never_worked_does_not_fall_by_half() -> None:
    assert measure_fading(make_rounds([0.0] * 15, [2])) == Fading(2, 0.0, 0.0, None)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.data())
def test_the_round_of_the_half_is_the_first_below_it(backdoors: list[float], data: st.DataObject) -> None:
    stop = data.draw(st.integers(1, len(backdoors) - 1))
    fading = measure_fading(make_rounds(backdoors, [stop]))
    assert fading is not None
    half = backdoors[stop - 1] / 2
    after = backdoors[stop:]
    if fading.half_rounds is None:
        assert min(after) >= half
    else:
        assert after[fading.half_rounds - 1] < half <= min([1.0, *after[: fading.half_rounds - 1]])
    assert fading.later_backdoor_accuracy == dict(enumerate(after, start=1)).get(LATER_ROUNDS)


def test_a_summary_keeps_it() -> None:
    summary = summarise_rounds(make_rounds([0.9, 0.5, 0.4], [1]))
    assert summary.fading == Fading(1, 0.9, None, 2)
    assert Summary.parse(summary.plain(), "fault") == summary


@pytest.mark.parametrize(
    "change",
    [
        {"stop": 0},
        {"stop": True},
        {"stop": "3"},
        {"backdoor_accuracy": None},
        {"backdoor_accuracy": 1.5},
        {"later_backdoor_accuracy": "x"},
        {"half_rounds": 0},
        {"half_rounds": 10**400},
        {"half_rounds": 1.5},
    ],
)
def test_a_damaged_summary_is_refused(change: dict[str, Any]) -> None:
    content = summarise_rounds(make_rounds([0.9, 0.5, 0.4], [1])).plain()
    content["fading"] |= change
    with pytest.raises(RunError, match="its 'fading' cannot be"):
        Summary.parse(content, "fault")


@pytest.mark.parametrize("content", [3, [], {}, {"stop": 1, "backdoor_accuracy": 0.5}])
def test_a_summary_with_other_content_is_refused(content: Any) -> None:
    whole = summarise_rounds(make_rounds([0.9, 0.5, 0.4], [1])).plain()
    with pytest.raises(RunError, match="its 'fading' cannot be"):
        Summary.parse({**whole, "fading": content}, "fault")
