"""Pytrees as bytes, by hand; test_checkpoint.py draws them at random and writes them to files."""

from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.serialization import decode, encode, pack, refuse_stored, unpack

TREE = {"a": [1, 2.5, None, True, "x"], 7: ("b", ()), "empty": {}, ("k", 1): []}


def test_a_tree_comes_back_as_it_was() -> None:
    again = unpack(pack(TREE))
    assert again == TREE
    assert [type(value) for value in again["a"]] == [int, float, type(None), bool, str]


def test_nothing_gives_no_bytes() -> None:
    assert pack(None) == b""
    assert unpack(b"") is None
    assert unpack(pack([None])) == [None]


def test_tensors_are_named_in_their_order_and_copied() -> None:
    tensors: dict[str, Tensor] = {}
    learned = torch.ones(2, requires_grad=True)
    row = torch.arange(6.0).reshape(2, 3).T
    assert encode([learned, row], tensors) == {"list": [{"tensor": "0"}, {"tensor": "1"}]}
    assert not tensors["0"].requires_grad
    assert tensors["1"].is_contiguous()
    row[0] = 9
    assert tensors["1"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert torch.equal(unpack(pack([learned, row]))[1], row)


def test_tensors_may_be_stored_elsewhere() -> None:
    elsewhere = {"far": torch.ones(4)}
    packed = pack({"far": elsewhere["far"], "near": torch.zeros(1)}, lambda tensor: "far" if len(tensor) > 1 else None)
    again = unpack(packed, elsewhere.__getitem__)
    assert again["far"] is elsewhere["far"]
    assert again["near"].tolist() == [0]
    with pytest.raises(ValueError, match="a tensor is stored elsewhere, as 'far'"):
        unpack(packed)
    with pytest.raises(ValueError, match="stored elsewhere"):
        refuse_stored("x")


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", 1j, object(), torch.float32])
def test_what_json_does_not_know_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        encode([value], {})


def test_strings_and_numbers_stand_for_themselves() -> None:
    assert [decode(value, {}) for value in ("tensor", 1, None, False)] == ["tensor", 1, None, False]
