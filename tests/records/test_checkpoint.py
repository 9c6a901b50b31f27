import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from snowball.errors import RunError
from snowball.layout import Layout
from snowball.records.checkpoint import (
    MIN_STORED_BYTES,
    STATE_FILE,
    TENSOR_FOLDER,
    RunState,
    hash_tensor,
    load_state,
    save_state,
)
from snowball.records.files import write_bytes
from snowball.serialization import decode, encode, pack, pack_sealed, seal, unpack

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
    ),
)


def make_layout(width: int) -> Layout:
    return Layout(("w",), ((width,),))


@given(trees)
def test_trees_come_back_as_they_were(tree: Any) -> None:
    assert decode(encode(tree, {}), {}) == tree


def test_a_checkpoint_brings_back_every_bit(tmp_path: Path) -> None:
    shared = torch.randn(4, 6, dtype=torch.float64)
    tensors = [shared, shared.T, shared[1], torch.tensor(3), torch.tensor([True, False]), torch.zeros(0)]
    defense = {"history": tensors, 7: ("a", None, math.inf, 0.1), "tensor": {"tensor": 1}}
    save_state(RunState(12, torch.randn(9), defense), tmp_path / "checkpoint")
    state = load_state(tmp_path / "checkpoint", 12, make_layout(9))
    assert state is not None
    assert state.round == 12
    assert state.defense["tensor"] == {"tensor": 1}
    assert state.defense[7] == ("a", None, math.inf, 0.1)
    assert all(are_equal(*pair) for pair in zip(state.defense["history"], tensors, strict=True))


def are_equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def test_a_checkpoint_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_state(RunState(1, torch.zeros(3)), tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left on device"):
        save_state(RunState(2, torch.ones(3)), tmp_path)
    state = load_state(tmp_path, 2, make_layout(3))
    assert state is not None
    assert state.round == 1
    assert [file.name for file in tmp_path.iterdir()] == [STATE_FILE]


LARGE = MIN_STORED_BYTES // 4


def make_large(value: float) -> Tensor:
    return torch.full((LARGE,), value)


def list_files(folder: Path) -> dict[str, int]:
    """Return the files of large tensors, each with a number that changes when it is written."""
    return {file.name: file.stat().st_mtime_ns for file in (folder / TENSOR_FOLDER).iterdir()}


def test_large_tensors_are_files_that_are_written_once(tmp_path: Path) -> None:
    kept = [make_large(number) for number in range(5)]
    save_state(RunState(1, torch.zeros(3), {"rows": kept[:4]}), tmp_path)
    before = list_files(tmp_path)
    assert len(before) == 4
    save_state(RunState(2, torch.zeros(3), {"rows": kept[1:]}), tmp_path)
    after = list_files(tmp_path)
    assert len(after) == 5  # the checkpoint before still uses the first one
    assert before.items() < after.items()
    save_state(RunState(3, torch.zeros(3), {"rows": kept[1:]}), tmp_path)
    del after[f"{hash_tensor(kept[0])}.safetensors"]
    assert list_files(tmp_path) == after
    assert (tmp_path / STATE_FILE).stat().st_size < 2**12
    state = load_state(tmp_path, 3, make_layout(3))
    assert state is not None
    assert all(are_equal(*pair) for pair in zip(state.defense["rows"], kept[1:], strict=True))


def test_large_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    shared = torch.randn(LARGE, 2)
    rows = [shared, shared.T, shared[:, 1], shared.bfloat16(), shared.double(), torch.zeros(4 * LARGE).bool()]
    equal_bytes = [
        torch.zeros(LARGE),
        torch.zeros(LARGE).int(),
        torch.zeros(LARGE, 1),
        torch.zeros(LARGE // 2).double(),
    ]
    save_state(RunState(1, torch.zeros(3), {"rows": [*rows, *equal_bytes]}), tmp_path)
    state = load_state(tmp_path, 1, make_layout(3))
    assert state is not None
    assert all(are_equal(*pair) for pair in zip(state.defense["rows"], [*rows, *equal_bytes], strict=True))


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_crash_between_the_files_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    def crash(path: Path, content: bytes, keep_before: bool = False) -> None:
        done.append(path)
        if len(done) > writes:
            raise KeyboardInterrupt
        write_bytes(path, content, keep_before)

    save_state(RunState(1, torch.zeros(3), {"rows": [make_large(1), make_large(2)]}), tmp_path)
    done: list[Path] = []
    following = RunState(2, torch.zeros(3), {"rows": [make_large(2), make_large(3), make_large(4)]})
    for module in ("checkpoint", "sealed"):
        monkeypatch.setattr(f"snowball.records.{module}.write_bytes", crash)
    with pytest.raises(KeyboardInterrupt):
        save_state(following, tmp_path)
    state = load_state(tmp_path, 2, make_layout(3))
    assert state is not None
    assert state.round == 1
    assert torch.equal(state.defense["rows"][0], make_large(1))
    monkeypatch.undo()
    save_state(following, tmp_path)
    assert len(list_files(tmp_path)) == 4  # three, and one that only the checkpoint before uses


def test_without_large_tensors_there_is_one_file(tmp_path: Path) -> None:
    save_state(RunState(1, torch.zeros(3), {"rows": [torch.ones(LARGE - 1)]}), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [STATE_FILE]


HARM: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "not sealed": lambda path: path.write_bytes(pack(make_large(1))),
    "another": lambda path: path.write_bytes(pack_sealed(make_large(2))),
    "no tensor": lambda path: path.write_bytes(pack_sealed({"a": 1})),
    "elsewhere": lambda path: path.write_bytes(pack_sealed(make_large(1), lambda _: "other")),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_file_of_a_large_tensor_is_refused(tmp_path: Path, harm: str) -> None:
    save_state(RunState(1, torch.zeros(3), {"rows": [make_large(1)]}), tmp_path)
    (file,) = (tmp_path / TENSOR_FOLDER).iterdir()
    HARM[harm](file)
    with pytest.raises(RunError, match=r"state\.safetensors is not a checkpoint of a run: "):
        load_state(tmp_path, 2, make_layout(3))


@pytest.mark.parametrize("name", ["../state", "\0", "x" * 5000, "", 5])
def test_a_checkpoint_that_names_other_files_is_refused(tmp_path: Path, name: Any) -> None:
    state = RunState(1, torch.zeros(3), {"rows": [make_large(1)]})
    (tmp_path / STATE_FILE).write_bytes(pack_sealed(vars(state), lambda tensor: name if len(tensor) > 3 else None))
    with pytest.raises(RunError, match=r"state\.safetensors is not a checkpoint of a run: "):
        load_state(tmp_path, 2, make_layout(3))


def test_what_is_packed_whole_names_no_other_file() -> None:
    with pytest.raises(ValueError, match="a tensor is stored elsewhere, as 'there'"):
        unpack(pack([torch.ones(3)], lambda _: "there"))


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_bytes(pack(vars(RunState(1, torch.zeros(3)))))
    with pytest.raises(
        RunError, match=r"state\.safetensors is not a checkpoint of a run: it has no SHA-256 .* earlier"
    ):
        load_state(tmp_path, 2, make_layout(3))


def test_no_checkpoint_is_no_state(tmp_path: Path) -> None:
    assert load_state(tmp_path, 2, make_layout(3)) is None


@pytest.mark.parametrize("content", [b"", b"{}", bytes(100), b"\x02" + bytes(7) + b"{}"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STATE_FILE).write_bytes(content)
    with pytest.raises(RunError, match="is not a checkpoint of a run"):
        load_state(tmp_path, 2, make_layout(3))


FOREIGN = {
    "a round too far": (RunState(3, torch.zeros(3)), "its round cannot be 3 in a run of 2"),
    "a round before the first": (RunState(-1, torch.zeros(3)), "its round cannot be -1"),
    "no number": (RunState("1", torch.zeros(3)), "its round cannot be 1"),  # type: ignore[arg-type]
    "a truth": (RunState(True, torch.zeros(3)), "its round cannot be True"),
    "another model": (RunState(1, torch.zeros(4)), "its model is not a float32 row of 3 numbers"),
    "a column": (RunState(1, torch.zeros(3, 1)), "its model is not a float32 row of 3 numbers"),
    "another precision": (RunState(1, torch.zeros(3).double()), "its model is not a float32 row of 3 numbers"),
    "no model": (RunState(1, [0.0] * 3), "its model is not a float32 row of 3 numbers"),  # type: ignore[arg-type]
    "a broken model": (RunState(1, torch.tensor([0, torch.nan, 0])), "its model holds numbers that are not finite"),
    "another state": (RunState(1, torch.zeros(3), [1]), "the defense's state cannot be a list"),
    "another memory": (RunState(1, torch.zeros(3), None, [1]), "the clients' state cannot be a list"),  # type: ignore[arg-type]
    "no buffers": (RunState(1, torch.zeros(3), buffers=[1]), "its model's buffers are not finite tensors by name"),  # type: ignore[arg-type]
    "numbers for buffers": (
        RunState(1, torch.zeros(3), buffers={"mean": 1.0}),  # type: ignore[dict-item]
        "its model's buffers are not finite tensors by name",
    ),
    "broken buffers": (
        RunState(1, torch.zeros(3), buffers={"mean": torch.tensor([1, torch.inf])}),
        "its model's buffers are not finite tensors by name",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_checkpoint_that_does_not_fit_the_run_is_refused(tmp_path: Path, case: str) -> None:
    state, fault = FOREIGN[case]
    save_state(state, tmp_path)
    with pytest.raises(RunError, match="is not a checkpoint of this run: ") as caught:
        load_state(tmp_path, 2, make_layout(3))
    assert fault in str(caught.value)


def test_a_checkpoint_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    tree = '{"list": [' * 5000 + "1" + "]}" * 5000
    (tmp_path / STATE_FILE).write_bytes(seal(save({}, {"sealed": "0" * 64 + tree})))
    with pytest.raises(RunError, match="is not a checkpoint of a run"):
        load_state(tmp_path, 2, make_layout(3))


def test_a_state_that_would_need_pickle_is_refused() -> None:
    with pytest.raises(TypeError, match="not set"):
        encode({"ids": {1, 2}}, {})
