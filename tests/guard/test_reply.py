import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses import FedAvg
from snowball.guard import REASONS, Guard, Reply
from snowball.guard.reply import MAX_DETAIL_CHARS, InvalidReply, check_numbers, read_examples, read_reply
from snowball.guard.validation import validate_replies

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply, change_reply = SHARED["MODEL"], SHARED["make_honest_reply"], SHARED["change_reply"]
HOSTILE_TENSORS, HOSTILE_EXAMPLES = SHARED["HOSTILE_TENSORS"], SHARED["HOSTILE_EXAMPLES"]
ATTACKER = "site-99"


def run_round(guard: Guard, *hostile: Reply) -> Any:
    """Run a round of four honest clients and these."""
    return guard(MODEL, [*hostile, *(make_honest_reply(number) for number in range(4))])


def find_drop(guard: Guard, hostile: Reply) -> dict[str, str]:
    """Return why a hostile reply was dropped; check that it changed nothing and that the next round works."""
    alone = run_round(Guard(FedAvg()))
    judgement = run_round(guard, hostile)
    assert judgement.averaged == alone.averaged == tuple(f"site-{number:02}" for number in range(4))
    assert all(torch.equal(judgement.tensors[name], alone.tensors[name]) for name in MODEL)
    after = run_round(guard)
    assert (after.entry["round"], after.entry["outcome"], after.entry["dropped"]) == (2, "aggregated", [])
    (dropped,) = judgement.entry["dropped"]
    assert dropped["client"] == hostile.client
    assert len(dropped["detail"]) <= MAX_DETAIL_CHARS
    return dropped


@pytest.mark.parametrize("case", HOSTILE_TENSORS)
def test_hostile_tensors_are_dropped_for_a_named_reason(case: str) -> None:
    reason, make = HOSTILE_TENSORS[case]
    hostile = Reply(ATTACKER, 20, make(dict(make_honest_reply(99).tensors)))
    assert find_drop(Guard(FedAvg()), hostile)["reason"] == reason


@pytest.mark.parametrize("count", HOSTILE_EXAMPLES, ids=lambda count: type(count).__name__)
def test_hostile_example_counts_are_dropped(count: Any) -> None:
    assert find_drop(Guard(FedAvg()), Reply(ATTACKER, count, make_honest_reply(99).tensors))["reason"] == "examples"


def test_every_reason_has_a_case_here() -> None:
    of_clients = {"duplicate", "not-asked", "identity", "denied"}  # the last two: test_names.py, test_decisions.py
    of_clients |= {"copy", "no-length"}  # test_seats.py
    assert set(REASONS) == {reason for reason, _ in HOSTILE_TENSORS.values()} | {"examples"} | of_clients


@pytest.mark.parametrize(
    "count",
    [10, 10.5, np.int32(10), np.float32(10), np.array(10), np.array([10.0]), torch.tensor(10), torch.tensor([10.0])],
)
def test_counts_come_in_many_types(count: Any) -> None:
    (valid,), dropped = validate_replies([Reply("a", count, make_honest_reply(0).tensors)], MODEL)
    assert (valid.examples, dropped) == (10.5 if count == 10.5 else 10, [])


def test_the_second_answer_of_a_client_is_dropped_and_the_first_stays(replies: list[Reply]) -> None:
    twice = Reply("site-01", 20, make_honest_reply(99).tensors)
    judgement = Guard(FedAvg())(MODEL, [*replies, twice])
    assert [(fault["client"], fault["reason"]) for fault in judgement.entry["dropped"]] == [("site-01", "duplicate")]
    alone = Guard(FedAvg())(MODEL, replies)
    assert all(torch.equal(judgement.tensors[name], alone.tensors[name]) for name in MODEL)


def test_a_second_answer_does_not_mend_the_first(replies: list[Reply]) -> None:
    broken = Reply("site-50", 20, {})
    entry = Guard(FedAvg())(MODEL, [broken, *replies, Reply("site-50", 20, make_honest_reply(50).tensors)]).entry
    assert [fault["reason"] for fault in entry["dropped"]] == ["names", "duplicate"]


def test_who_was_not_asked_is_dropped_and_who_does_not_answer_is_silent(replies: list[Reply]) -> None:
    asked = [f"site-{number:02}" for number in range(1, 10)]
    entry = Guard(FedAvg())(MODEL, replies, asked).entry
    assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [("site-00", "not-asked")]
    assert entry["silent"] == ["site-08", "site-09"]
    assert "site-00" in entry["answered"]
    assert "site-00" not in entry["averaged"]


def test_ids_that_are_numbers_are_texts_everywhere() -> None:
    answers = [Reply(number, 10, make_honest_reply(number).tensors) for number in (1, 2)]  # type: ignore[arg-type]
    entry = Guard(FedAvg())(MODEL, answers, asked=[1, 2, 3]).entry  # type: ignore[list-item]
    assert (entry["asked"], entry["averaged"], entry["silent"]) == (["1", "2", "3"], ["1", "2"], ["3"])


@pytest.mark.parametrize(
    ("count", "bound", "fine"), [(2000, None, True), (2001, None, False), (50, 49, False), (50, 50, True)]
)
def test_examples_are_bounded_by_the_operator_or_by_the_crowd(count: int, bound: float | None, fine: bool) -> None:
    others = [Reply(f"other-{number}", 20, make_honest_reply(number).tensors) for number in range(3)]
    valid, dropped = validate_replies([*others, Reply("site", count, make_honest_reply(9).tensors)], MODEL, None, bound)
    assert (len(valid), len(dropped)) == ((4, 0) if fine else (3, 1))


def test_of_two_clients_the_one_with_absurdly_many_examples_is_dropped() -> None:
    pair = [Reply("a", 100, make_honest_reply(0).tensors), Reply("b", 1e12, make_honest_reply(1).tensors)]
    _, dropped = validate_replies(pair, MODEL)
    assert [(fault.client, fault.reason) for fault in dropped] == [("b", "examples")]


def test_numbers_of_another_width_and_whole_ones_are_taken() -> None:
    answer = change_reply(
        make_honest_reply(0),
        first_weight=np.ones((4, 3), np.float64),
        last_bias=[1, 2],
        norm_num_batches_tracked=np.int32(9),
    )
    (valid,), dropped = validate_replies([answer], MODEL)
    assert dropped == []
    assert {name: tensor.dtype for name, tensor in valid.tensors.items()} == {
        name: tensor.dtype for name, tensor in MODEL.items()
    }
    assert list(valid.tensors) == list(MODEL)
    assert valid.tensors["last.bias"].tolist() == [1, 2]


def test_a_tensor_of_no_length_is_no_fault_where_the_model_has_one() -> None:
    model = {"weight": torch.ones(2, 2), "empty": torch.zeros(0, 3)}
    judgement = Guard(FedAvg())(model, [Reply("a", 5, {"weight": torch.zeros(2, 2), "empty": np.zeros((0, 3))})])
    assert judgement.averaged == ("a",)
    assert judgement.tensors["empty"].shape == (0, 3)


@pytest.mark.parametrize("count", [0.5, 1, (1 << 53) - 1, 1 << 53])
def test_every_possible_count_is_taken(count: float) -> None:
    assert (read_examples(count), type(read_examples(count))) == (count, float)


def test_counts_that_no_float_holds_exactly_are_refused() -> None:
    with pytest.raises(InvalidReply):
        read_examples((1 << 53) + 2)


def test_a_reply_knows_how_far_it_moved() -> None:
    moved = {**MODEL, "last.bias": torch.tensor([3.0, 4.0]), "norm.num_batches_tracked": torch.tensor(900)}
    assert read_reply("a", Reply("a", 10, moved), MODEL).norm == 5


def test_a_tensor_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidReply, match=r"'first\.weight'"):
        read_reply("a", Reply("a", 10, {**MODEL, "first.weight": "weights"}), MODEL)


def test_a_counter_may_move_by_two_to_the_31_and_no_more() -> None:
    own = torch.tensor(5)
    assert check_numbers("steps", own + (1 << 31), own) == 0
    assert check_numbers("steps", own - (1 << 31), own) == 0
    with pytest.raises(InvalidReply):
        check_numbers("steps", own + (1 << 31) + 1, own)


def test_every_counter_of_several_is_checked() -> None:
    own = torch.tensor([5, 5])
    with pytest.raises(InvalidReply):
        check_numbers("steps", own + torch.tensor([0, 1 << 40]), own)
    assert check_numbers("mask", torch.tensor([True, False]), torch.tensor([False, True])) == 0


def test_finite_numbers_whose_squares_overflow_are_too_long_and_not_broken() -> None:
    model = {"weight": torch.zeros(2, dtype=torch.float64)}
    far = Reply("far", 10, {"weight": torch.tensor([1e200, 0.0], dtype=torch.float64)})
    _, dropped = validate_replies([Reply("a", 10, model), far], model)
    assert [(fault.client, fault.reason) for fault in dropped] == [("far", "norm")]


def test_a_variance_may_vanish_but_none_may_be_negative() -> None:
    own = torch.ones(2)
    assert check_numbers("norm.running_var", torch.zeros(2), own) == 2
    with pytest.raises(InvalidReply):
        check_numbers("norm.running_var", torch.tensor([1.0, -1e-9]), own)


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3),
    st.lists(st.floats(width=32), max_size=4),
    st.sampled_from([np.float64(1), np.str_("x"), 10**400, 1j, torch.tensor(3)]),
)  # fmt: skip
DTYPES = st.sampled_from(
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.bool, torch.complex64]
)
SHAPES = st.sampled_from([(), (0,), (1,), (2,), (4,), (3, 4), (4, 3), (2, 4), (1, 3), (4, 3, 1)])
TENSORS = st.builds(
    lambda shape, value, dtype: torch.full(shape, value, dtype=torch.float64).to(dtype),
    SHAPES, st.sampled_from([0.0, 1.0, -1e30, 1e300, torch.nan, torch.inf]), DTYPES,
)  # fmt: skip
WRONG = st.one_of(
    TENSORS,
    ANYTHING,
    st.sampled_from(
        [torch.empty(4, 3, device="meta"), torch.eye(4).to_sparse(), np.full((4, 3), None), np.full((4, 3), "x")]
    ),
)


@st.composite
def malformed(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw a count and tensors, at least one of them invalid."""
    kind = draw(st.sampled_from(["count", "tensors", "tensor", "names", "both"]))
    count = draw(st.sampled_from(HOSTILE_EXAMPLES)) if kind in ("count", "both") else draw(st.integers(1, 50))
    own = dict(make_honest_reply(draw(st.integers(0, 50))).tensors)
    if kind == "tensors":
        return count, draw(ANYTHING)
    if kind == "names":
        return count, {**own, draw(st.text(max_size=5).filter(lambda name: name not in MODEL)): draw(WRONG)}
    if kind in ("tensor", "both"):
        name = draw(st.sampled_from(list(MODEL)))
        return count, {**own, name: draw(WRONG), **({} if kind == "both" else {"last.bias": draw(hostile_bias())})}
    return count, own


def hostile_bias() -> st.SearchStrategy[Any]:
    return st.sampled_from(
        [None, "x", np.full(2, None), torch.full((2,), torch.nan), torch.zeros(3), torch.tensor([True, False]),
         torch.zeros(2, device="meta"), torch.full((2,), 1e38), torch.full((2,), 1e39, dtype=torch.float64)]
    )  # fmt: skip


COUNTED = {"replies": 0}


@settings(max_examples=110, deadline=None, database=None, derandomize=True)
@given(st.lists(malformed(), min_size=20, max_size=30))
def check_malformed_replies(batch: list[tuple[Any, Any]]) -> None:
    hostile = [Reply(f"bad-{number}", count, tensors) for number, (count, tensors) in enumerate(batch)]
    COUNTED["replies"] += len(hostile)
    judgement = run_round(Guard(FedAvg()), *hostile)
    assert judgement.averaged == tuple(f"site-{number:02}" for number in range(4))
    assert len(judgement.entry["dropped"]) == len(hostile)
    assert {fault["reason"] for fault in judgement.entry["dropped"]} <= set(REASONS)
    assert all(tensor.isfinite().all() for tensor in judgement.tensors.values())


def test_two_thousand_malformed_replies_neither_raise_nor_reach_the_average() -> None:
    COUNTED["replies"] = 0
    check_malformed_replies()
    assert COUNTED["replies"] >= 2000
