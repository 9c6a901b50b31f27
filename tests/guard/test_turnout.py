import logging
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses import FedAvg, Krum, Median, SnowballPlus
from snowball.errors import SettingError
from snowball.guard import Dropped, Guard, Reply
from snowball.guard.turnout import explain_low_turnout
from snowball.records.audit import LOW_TURNOUT

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]
ASKED = [f"site-{number:02}" for number in range(20)]


def make_outlier(number: int) -> Reply:
    """Return a reply whose update is long, and not so long that it is dropped."""
    honest = make_honest_reply(number)
    moved = {**honest.tensors, "first.weight": honest.tensors["first.weight"] + 3}
    return Reply(honest.client, honest.examples, moved)


THREE = [make_honest_reply(0), make_honest_reply(1), make_outlier(2)]


@pytest.mark.parametrize("defense", [FedAvg(), Median(), SnowballPlus()])
def test_three_of_twenty_keep_the_model_and_say_why(defense: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snowball"):
        judgement = Guard(defense)(MODEL, THREE, ASKED)
    assert judgement.kept
    assert all(torch.equal(tensor, MODEL[name]) for name, tensor in judgement.tensors.items())
    assert judgement.entry["reason"].startswith("low turnout: 3 of 20 asked sent a valid reply, and 10 are needed")
    assert "Round 1: the old global model stays: low turnout: 3 of 20" in caplog.text


def test_replies_that_are_not_valid_do_not_count() -> None:
    valid = [make_honest_reply(number) for number in range(9)]
    broken = [Reply(ASKED[number], 20, {}) for number in range(9, 15)]
    failed = [Dropped(ASKED[15], "error", "it broke")]
    assert Guard(FedAvg())(MODEL, [*valid, *broken], ASKED, failed).kept
    assert not Guard(FedAvg())(MODEL, [*valid, make_honest_reply(9)], ASKED).kept


def test_the_operator_may_choose_to_aggregate_and_the_audit_says_so(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(FedAvg(), low_turnout="aggregate")
    with caplog.at_level(logging.WARNING, "snowball"):
        judgement = guard(MODEL, THREE, ASKED)
    assert (judgement.kept, judgement.averaged) == (False, ("site-00", "site-01", "site-02"))
    assert judgement.entry["reason"] == (
        "low turnout: 3 of 20 asked sent a valid reply, and 10 are needed; "
        "they are averaged all the same, because of low_turnout='aggregate'"
    )
    assert "Round 1: low turnout" in caplog.text
    assert guard(MODEL, [make_honest_reply(number) for number in range(10)], ASKED).entry["reason"] is None


def test_monitoring_changes_nothing_and_says_that_the_turnout_was_low() -> None:
    entry = Guard(Krum(tolerate=7), "monitor")(MODEL, THREE, ASKED).entry
    assert entry["outcome"] == "aggregated"
    assert entry["reason"].startswith("low turnout: 3 of 20 ")
    assert "because of mode='monitor'; the defense could not judge: tolerating 7" in entry["reason"]


def test_if_nobody_knows_who_was_asked_the_defense_alone_sets_the_bound() -> None:
    assert not Guard(FedAvg())(MODEL, THREE[:1]).kept
    assert not Guard(Median())(MODEL, THREE).kept
    entry = Guard(Median())(MODEL, THREE[:2]).entry
    assert entry["reason"].startswith("low turnout: Median cannot tell one reply from the others below 3, and 2 are")
    assert Guard()(MODEL, THREE).kept
    assert not Guard()(MODEL, [*THREE, make_honest_reply(3)]).kept


def test_a_share_of_zero_leaves_the_defenses_own_bound() -> None:
    assert not Guard(Median(), min_answers=0)(MODEL, THREE, ASKED).kept
    assert Guard(Median(), min_answers=0)(MODEL, THREE[:2], ASKED).kept


def test_a_share_of_one_needs_everybody(replies: list[Reply]) -> None:
    clients = [reply.client for reply in replies]
    assert not Guard(FedAvg(), min_answers=1)(MODEL, replies, clients).kept
    assert Guard(FedAvg(), min_answers=1)(MODEL, replies[1:], clients).kept


@pytest.mark.parametrize("share", [-0.1, 1.5, 2, True, "0.5", None, float("nan")])
def test_a_share_that_cannot_be_is_refused(share: Any) -> None:
    with pytest.raises(SettingError, match="min_answers must be a share from 0 to 1"):
        Guard(min_answers=share)


def test_a_word_that_means_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="low_turnout is 'keep' or 'aggregate', got 'ignore'"):
        Guard(low_turnout="ignore")  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None, database=None)
@given(asked=st.integers(0, 60), valid=st.integers(1, 60), share=st.floats(0, 1))
def test_the_bound_is_the_share_of_those_asked(asked: int, valid: int, share: float) -> None:
    found = explain_low_turnout(valid, [str(number) for number in range(asked)], share, FedAvg())
    if valid < share * asked - 1e-6:
        assert found is not None
        assert found.startswith(LOW_TURNOUT)
    elif valid >= share * asked:
        assert found is None
