"""Arguments of the wrong type: the operator's code gets a one-sentence error, a client's reply is dropped."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from snowball.defenses import FedAvg
from snowball.errors import SettingError, UpdateError
from snowball.guard import Guard, Reply
from snowball.records.audit import read_audit
from snowball.server import Dropped

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
MODEL, make_honest_reply = SHARED["MODEL"], SHARED["make_honest_reply"]

NOT_A_MODEL: dict[str, Any] = {
    "Linear": nn.Linear(2, 2),
    "list": list(MODEL.values()),
    "Tensor": torch.ones(3),
    "NoneType": None,
}


@pytest.mark.parametrize("kind", NOT_A_MODEL)
def test_a_global_model_without_names_is_refused(kind: str, replies: list[Reply]) -> None:
    guard = Guard(FedAvg())
    words = f"the global model must be a mapping of names to tensors, got {kind}: pass its state_dict()"
    with pytest.raises(UpdateError, match=f"^{re.escape(words)}$"):
        guard(NOT_A_MODEL[kind], replies)
    assert guard.round == 0


@pytest.mark.parametrize("kind", NOT_A_MODEL)
def test_a_reply_without_names_is_dropped(kind: str, replies: list[Reply]) -> None:
    judgement = Guard(FedAvg())(MODEL, [*replies, Reply("site-90", 20, NOT_A_MODEL[kind])])
    detail = f"its tensors are {kind}, expected a mapping of names to tensors"
    assert judgement.entry["dropped"] == [{"client": "site-90", "reason": "names", "detail": detail}]
    assert not judgement.kept


def test_if_every_reply_is_dropped_the_reason_says_why() -> None:
    judgement = Guard(FedAvg())(MODEL, [Reply("a", 1, []), Reply("b", 0, MODEL)])
    assert judgement.entry["reason"] == "there is no reply to judge: all dropped for examples, names"


NOT_REPLIES: dict[str, tuple[Any, str]] = {
    "a dict": ({"site-00": make_honest_reply(0)}, "got dict: pass one Reply per client"),
    "a single reply": (make_honest_reply(0), "got Reply: pass one Reply per client"),
    "nothing": (None, "got NoneType: pass one Reply per client"),
}


@pytest.mark.parametrize(("replies", "words"), NOT_REPLIES.values(), ids=NOT_REPLIES)
def test_replies_of_another_kind_are_refused(replies: Any, words: str) -> None:
    guard = Guard(FedAvg())
    with pytest.raises(UpdateError, match=f"^replies must be a list of Reply, {words}$"):
        guard(MODEL, replies)
    assert guard.round == 0


class Unnameable:
    def __str__(self) -> str:
        raise RuntimeError("no name")


NO_NAME: Any = Unnameable()

BAD_REPLIES: dict[str, tuple[Any, str]] = {
    "nothing": (None, "expected a Reply, got NoneType"),
    "a model": (dict(MODEL), "expected a Reply, got dict"),
    "a tuple": (("site-00", 20, MODEL), "expected a Reply, got tuple"),
    "an id without a text": (Reply(NO_NAME, 20, MODEL), "its sender's id is not a text"),
}


@pytest.mark.parametrize("bad", BAD_REPLIES)
def test_what_is_not_a_reply_costs_no_other_reply(bad: str, replies: list[Reply]) -> None:
    value, detail = BAD_REPLIES[bad]
    guard = Guard(FedAvg())
    judgement = guard(MODEL, [*replies[:1], value, *replies[1:]])
    assert guard.round == 1
    assert len(judgement.averaged) == len(replies)
    assert judgement.entry["dropped"] == [{"client": "(reply 2)", "reason": "error", "detail": detail}]


def test_a_round_keeps_the_replies_that_arrived_before_the_iterator_broke(replies: list[Reply], tmp_path: Path) -> None:
    def receive() -> Iterator[Reply]:
        yield from replies[:6]
        raise ConnectionError("the line is dead")

    asked = [reply.client for reply in replies]
    judgement = Guard(FedAvg(), audit=tmp_path / "audit.jsonl")(MODEL, receive(), asked)
    assert judgement.averaged == tuple(asked[:6])
    (entry,) = read_audit(tmp_path / "audit.jsonl")
    assert entry["outcome"] == "aggregated"
    assert entry["silent"] == asked[6:]
    (dropped,) = entry["dropped"]
    assert dropped["client"] == "(reply 7)"
    assert dropped["detail"] == "no further reply could be read after 6: ConnectionError: the line is dead"


def test_an_iterator_that_breaks_at_once_keeps_the_model() -> None:
    broken: Any = (1 / 0 for _ in range(3))
    judgement = Guard(FedAvg())(MODEL, broken)
    assert judgement.kept
    assert "ZeroDivisionError" in judgement.entry["dropped"][0]["detail"]


def test_a_failure_of_another_kind_does_not_end_a_round(replies: list[Reply]) -> None:
    failures: Any = [None, Dropped(NO_NAME, "error", "lost"), Dropped("site-90", "error", "lost")]
    judgement = Guard(FedAvg())(MODEL, replies, None, failures)
    assert [fault["client"] for fault in judgement.entry["dropped"]] == ["(failure 1)", "(failure 2)", "site-90"]
    assert len(judgement.averaged) == len(replies)


def test_those_asked_must_have_names(replies: list[Reply]) -> None:
    with pytest.raises(UpdateError, match=r"^asked must be a list of client ids: RuntimeError: no name$"):
        Guard(FedAvg())(MODEL, replies, ["site-00", NO_NAME])


def test_replies_may_come_one_by_one(replies: list[Reply]) -> None:
    assert len(Guard(FedAvg())(MODEL, iter(replies)).averaged) == len(replies)


@pytest.mark.parametrize("asked", ["site-00", 8])
def test_a_single_id_is_not_a_list_of_clients(asked: Any, replies: list[Reply]) -> None:
    with pytest.raises(UpdateError, match=f"^asked must be a list of client ids, got '{asked}'$"):
        Guard(FedAvg())(MODEL, replies, asked)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"buffers": "last.bias"}, "buffers must be a list of tensor names, got 'last.bias'"),
        ({"min_elected": "2"}, "min_elected must be a positive number, got '2'"),
        ({"rounds": [5]}, "rounds must be a positive number, got [5]"),
    ],
)
def test_settings_of_another_kind_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=f"^{re.escape(words)}$"):
        Guard(**settings)
