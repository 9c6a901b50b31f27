"""Arguments of the wrong type: the operator's code gets a one-sentence error, a client's reply is dropped."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from snowball.defenses import FedAvg
from snowball.errors import SettingError, UpdateError
from snowball.guard import Guard, Reply

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
    "models": ([make_honest_reply(0), dict(MODEL)], "got dict at index 1"),
    "tuples": ([("site-00", 20, MODEL)], "got tuple at index 0"),
}


@pytest.mark.parametrize(("replies", "words"), NOT_REPLIES.values(), ids=NOT_REPLIES)
def test_replies_of_another_kind_are_refused(replies: Any, words: str) -> None:
    guard = Guard(FedAvg())
    with pytest.raises(UpdateError, match=f"^replies must be a list of Reply, {words}$"):
        guard(MODEL, replies)
    assert guard.round == 0


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
