import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowball.guard.alerts import ALERTS, KINDS, Event
from snowball.guard.alerts.events import (
    MAX_REASON_CHARS,
    MAX_STREAKS,
    RESULTS,
    classify_asked,
    extend_streaks,
    find_events,
    read_streaks,
    rename_streaks,
)
from snowball.records.audit import LOW_TURNOUT, REASONS

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
make_entry, accuse, drop = SHARED["make_entry"], SHARED["accuse"], SHARED["drop"]


def follow(entries: list[Any], patience: int = 3) -> list[Event]:
    """Return the alerts of some rounds, in order."""
    found, streaks = [], {}
    for entry in entries:
        events, streaks = find_events(entry, streaks, patience)
        assert [event.kind for event in events].count("round") == 1
        found += [event for event in events if event.kind != "round"]
    return found


def name(events: list[Event]) -> list[tuple[str, int, str | None]]:
    return [(event.kind, event.round, event.client) for event in events]


def test_a_quiet_round_has_one_event_that_counts_its_clients() -> None:
    entry = make_entry(4, answered=["a", "b"], elected=["a"], left_out=["b"], averaged=["a"], silent=["c"])
    (event,), _ = find_events(entry, {}, 3)
    assert event == Event(
        "round",
        4,
        None,
        "Round 4: aggregated, 2 answered, 1 silent, 0 dropped, 1 left out, 1 averaged",
        entry,
    )


def test_a_suspect_is_an_alert_once_per_streak() -> None:
    rounds = [accuse(number, ["mallory"], ["a"]) for number in range(1, 8)]
    rounds += [accuse(8, [], ["a", "mallory"]), *(accuse(number, ["mallory"], ["a"]) for number in range(9, 14))]
    assert name(follow(rounds)) == [("suspect", 3, "mallory"), ("suspect", 11, "mallory")]
    assert name(follow(rounds, patience=1)) == [("suspect", 1, "mallory"), ("suspect", 9, "mallory")]


def test_rounds_that_do_not_judge_a_client_neither_end_its_streak_nor_add_to_it() -> None:
    between = [
        make_entry(2, silent=["m"]),
        make_entry(3, answered=["m"], dropped=[drop("m")]),
        make_entry(4, dropped=[drop("m", "error")]),
        make_entry(5),
        make_entry(6, answered=["m"], outcome="aggregated"),
    ]
    assert name(follow([accuse(1, ["m"]), *between], patience=2)) == []
    assert name(follow([accuse(1, ["m"]), *between, accuse(7, ["m"])], patience=2)) == [("suspect", 7, "m")]


def test_being_left_out_without_an_accusation_ends_the_streak() -> None:
    spared = make_entry(2, answered=["m"], left_out=["m"])
    assert follow([accuse(1, ["m"]), spared, accuse(3, ["m"])], patience=2) == []


def test_a_client_that_keeps_sending_malformed_replies_is_an_alert() -> None:
    broken = [make_entry(number, answered=["m"], dropped=[drop("m")]) for number in range(1, 6)]
    (event,) = follow(broken)
    assert name([event]) == [("malformed", 3, "m")]
    assert event.message == "Round 3: m sent malformed replies 3 rounds in a row: not-finite, 'w' holds NaN"
    assert follow([*broken[:2], accuse(3, ["m"]), broken[3]]) == []


@pytest.mark.parametrize("reason", ["error", "denied", "not-asked", "duplicate"])
def test_failing_or_being_denied_is_not_malformed(reason: str) -> None:
    assert follow([make_entry(number, answered=["m"], dropped=[drop("m", reason)]) for number in range(1, 6)]) == []


def test_the_message_says_what_a_suspect_is_accused_of() -> None:
    charged = accuse(1, ["m"], facts={"charge": "leans to class 1 with 2 others"})
    (event,) = follow([charged], patience=1)
    assert event.message == "Round 1: m was suspect: leans to class 1 with 2 others"
    (event,) = follow([accuse(1, ["m"], facts={"charge": {"m": 1}})], patience=1)
    assert event.message == "Round 1: m was suspect"


def test_low_turnout_is_an_alert_beside_the_model_that_stays() -> None:
    reason = f"{LOW_TURNOUT}: 3 of 20 answered"
    assert name(follow([make_entry(outcome="kept", reason=reason)])) == [("low-turnout", 1, None), ("kept", 1, None)]
    assert name(follow([make_entry(reason=reason)])) == [("low-turnout", 1, None)]
    assert name(follow([make_entry(outcome="kept", reason="nobody is elected")])) == [("kept", 1, None)]


@pytest.mark.parametrize(
    ("clarity", "unclear"), [(None, False), (0.79, False), (0.8, True), (0.99, True), (1.0, False), (3.0, False)]
)
def test_a_round_is_unclear_just_below_an_accusation(clarity: float | None, unclear: bool) -> None:
    assert name(follow([make_entry(clarity=clarity)])) == [("unclear", 1, None)] * unclear


def test_every_kind_but_the_round_is_an_alert() -> None:
    assert {*ALERTS, "round"} == set(KINDS)


def test_a_client_has_one_result() -> None:
    entry = make_entry(
        asked=["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
        answered=["a", "b", "c", "d", "h", "i", "j", "x"],
        silent=["f"],
        dropped=[
            drop("d"),
            drop("e", "error"),
            drop("x", "not-asked"),
            drop("g", "denied"),
            drop("a", "duplicate"),
            drop("h", "identity"),
            drop("d", "duplicate"),
        ],
        elected=["a", "i"],
        left_out=["b", "c", "j"],
        suspects=["c", "j"],
        decisions=[{"client": each, "rule": "probation", "reason": "new", "by": "me", "until": None} for each in "ij"],
    )
    assert classify_asked(entry) == {
        "a": "elected", "b": "not_needed", "c": "suspect", "d": "malformed", "e": "failed", "f": "silent",
        "g": "denied", "h": "dropped", "i": "probation", "j": "suspect",
    }  # fmt: skip
    assert classify_asked(make_entry(answered=["a"])) == {"a": "unjudged"}


@pytest.mark.parametrize("reason", sorted({*REASONS, "denied", "a reason of a later version"}))
def test_every_reason_has_a_result(reason: str) -> None:
    (result,) = classify_asked(make_entry(answered=["m"], dropped=[drop("m", reason)])).values()
    assert result in RESULTS


def test_names_and_reasons_cannot_break_the_line() -> None:
    client, charge = "m\nRound 9: all is well\x1b[2J" + "x" * 10**6, "leans\r\n" * 10**5
    (event,) = follow([accuse(1, [client], facts={"charge": charge})], patience=1)
    assert event.message.isprintable()
    assert len(event.message) < 2 * MAX_REASON_CHARS
    assert event.client == client


names = st.lists(st.text(max_size=3), unique=True, max_size=5)


@given(st.lists(st.tuples(names, names, names, names), max_size=8), st.integers(1, 4))
def test_events_follow_the_rounds_whatever_the_clients_are_called(
    rounds: list[tuple[list[str], ...]], patience: int
) -> None:
    entries = [
        make_entry(
            number,
            elected=elected,
            left_out=[*left_out, *suspects],
            suspects=suspects,
            dropped=[drop(each) for each in dropped],
            answered=sorted({*elected, *left_out, *suspects, *dropped}),
        )
        for number, (elected, left_out, suspects, dropped) in enumerate(rounds, start=1)
    ]
    alerts = follow(entries, patience)
    for client in {each for entry in entries for each in entry["answered"]}:
        history = [classify_asked(entry).get(client) for entry in entries]
        judged = [result for result in history if result in ("elected", "not_needed", "suspect")]
        streaks = "".join("s" if result == "suspect" else " " for result in judged).split()
        expected = sum(len(streak) >= patience for streak in streaks)
        assert sum(event.kind == "suspect" and event.client == client for event in alerts) == expected


def test_clients_that_come_and_go_do_not_fill_the_memory() -> None:
    streaks: dict[str, dict[str, int]] = {}
    for number in range(MAX_STREAKS + 50):
        streaks = extend_streaks({f"stranger {number}": "suspect", "m": "suspect"}, streaks)
    assert len(streaks["suspect"]) == MAX_STREAKS
    assert streaks["suspect"]["m"] == MAX_STREAKS + 50
    assert "stranger 0" not in streaks["suspect"]


def test_a_streak_moves_to_a_clients_new_name() -> None:
    streaks = {"suspect": {"7": 2, "8": 1, "Bonn": 4}, "malformed": {"7": 1}}
    assert rename_streaks(streaks, {"7": "Ulm", "8": "Bonn", "9": "Kiel"}) == {
        "suspect": {"Ulm": 2, "Bonn": 4},
        "malformed": {"Ulm": 1},
    }
    assert rename_streaks({"suspect": {"a": 1, "b": 2}}, {"a": "b", "b": "a"}) == {"suspect": {"b": 1, "a": 2}}


@pytest.mark.parametrize("broken", [None, 5, "suspect", {"suspect": 3}, {"suspect": {"a": "2"}}, {"other": {"a": 2}}])
def test_streaks_of_a_state_that_is_old_or_broken_are_none(broken: Any) -> None:
    assert not any(read_streaks(broken).values())
