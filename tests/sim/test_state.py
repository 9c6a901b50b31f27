import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from snowball.errors import RunError
from snowball.pytree import decode, encode, pack
from snowball.sim.state import FILE, State, load_state, save_state
from snowball.updates import Layout

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
    ),
)


def row(width: int) -> Layout:
    return Layout(("w",), ((width,),))


@given(trees)
def test_trees_come_back_as_they_were(tree: Any) -> None:
    assert decode(encode(tree, {}), {}) == tree


def test_a_checkpoint_brings_back_every_bit(tmp_path: Path) -> None:
    shared = torch.randn(4, 6, dtype=torch.float64)
    tensors = [shared, shared.T, shared[1], torch.tensor(3), torch.tensor([True, False]), torch.zeros(0)]
    defense = {"history": tensors, 7: ("a", None, math.inf, 0.1), "tensor": {"tensor": 1}}
    save_state(State(12, torch.randn(9), defense), tmp_path / "checkpoint")
    state = load_state(tmp_path / "checkpoint", 12, row(9))
    assert state is not None
    assert state.round == 12
    assert state.defense["tensor"] == {"tensor": 1}
    assert state.defense[7] == ("a", None, math.inf, 0.1)
    assert all(equal(*pair) for pair in zip(state.defense["history"], tensors, strict=True))


def equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def test_a_checkpoint_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_state(State(1, torch.zeros(3)), tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        save_state(State(2, torch.ones(3)), tmp_path)
    state = load_state(tmp_path, 2, row(3))
    assert state is not None
    assert state.round == 1
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_a_checkpoint_from_before_there_were_buffers_has_none(tmp_path: Path) -> None:
    former = vars(State(1, torch.zeros(3)))
    del former["buffers"]
    (tmp_path / FILE).write_bytes(pack(former))
    state = load_state(tmp_path, 2, row(3))
    assert state is not None
    assert state.buffers == {}


def test_no_checkpoint_is_no_state(tmp_path: Path) -> None:
    assert load_state(tmp_path, 2, row(3)) is None


@pytest.mark.parametrize("content", [b"", b"{}", bytes(100), b"\x02" + bytes(7) + b"{}"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(RunError, match="is not a checkpoint of a run"):
        load_state(tmp_path, 2, row(3))


FOREIGN = {
    "a round too far": (State(3, torch.zeros(3)), "its round cannot be 3 in a run of 2"),
    "a round before the first": (State(-1, torch.zeros(3)), "its round cannot be -1"),
    "no number": (State("1", torch.zeros(3)), "its round cannot be 1"),  # type: ignore[arg-type]
    "a truth": (State(True, torch.zeros(3)), "its round cannot be True"),
    "another model": (State(1, torch.zeros(4)), "its model is no float32 row of 3 numbers"),
    "a column": (State(1, torch.zeros(3, 1)), "its model is no float32 row of 3 numbers"),
    "another precision": (State(1, torch.zeros(3).double()), "its model is no float32 row of 3 numbers"),
    "no model": (State(1, [0.0] * 3), "its model is no float32 row of 3 numbers"),  # type: ignore[arg-type]
    "a broken model": (State(1, torch.tensor([0, torch.nan, 0])), "its model holds numbers that are not finite"),
    "another state": (State(1, torch.zeros(3), [1]), "the defense's state cannot be a list"),
    "another memory": (State(1, torch.zeros(3), None, [1]), "the clients' state cannot be a list"),  # type: ignore[arg-type]
    "no buffers": (State(1, torch.zeros(3), buffers=[1]), "its model's buffers are not finite tensors by name"),  # type: ignore[arg-type]
    "numbers for buffers": (
        State(1, torch.zeros(3), buffers={"mean": 1.0}),  # type: ignore[dict-item]
        "its model's buffers are not finite tensors by name",
    ),
    "broken buffers": (
        State(1, torch.zeros(3), buffers={"mean": torch.tensor([1, torch.inf])}),
        "its model's buffers are not finite tensors by name",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_checkpoint_that_does_not_fit_the_run_is_refused(tmp_path: Path, case: str) -> None:
    state, fault = FOREIGN[case]
    save_state(state, tmp_path)
    with pytest.raises(RunError, match="is not a checkpoint of this run: ") as caught:
        load_state(tmp_path, 2, row(3))
    assert fault in str(caught.value)


def test_a_checkpoint_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(save({}, {"tree": '{"list": [' * 5000 + "1" + "]}" * 5000}))
    with pytest.raises(RunError, match="is not a checkpoint of a run"):
        load_state(tmp_path, 2, row(3))


def test_a_state_that_would_need_pickle_is_refused() -> None:
    with pytest.raises(TypeError, match="not set"):
        encode({"ids": {1, 2}}, {})
