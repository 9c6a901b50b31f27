"""Sealed files: every changed bit is refused, or the version before is used with a warning."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.errors import RunError
from snowball.layout import Layout
from snowball.records.checkpoint import STATE_FILE, TENSOR_FOLDER, RunState, load_state, save_state
from snowball.records.files import locate_before
from snowball.records.sealed import read_sealed, write_sealed
from snowball.serialization import pack_sealed, unpack_sealed

VALUE = {"round": 3, "name": "ä!", "rows": (torch.arange(3.0), torch.tensor([True])), "none": None}
LAYOUT = Layout(("w",), ((3,),))
LARGE = 2**18
"""Numbers of a tensor that has a file of its own."""


def flip_bit(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_sealed_value_comes_back() -> None:
    value = unpack_sealed(pack_sealed(VALUE))
    assert (value["round"], value["name"], value["none"]) == (3, "ä!", None)
    assert torch.equal(value["rows"][0], VALUE["rows"][0])  # type: ignore[index]
    assert pack_sealed(VALUE) == pack_sealed(VALUE)


def test_every_flipped_bit_of_a_file_is_refused() -> None:
    content = pack_sealed(VALUE)
    assert b"  " in content  # padding
    for bit in range(8 * len(content)):
        with pytest.raises(ValueError, match="SHA-256"):
            unpack_sealed(flip_bit(content, bit))


def test_every_truncated_file_is_refused() -> None:
    content = pack_sealed(VALUE)
    for length in range(len(content)):
        with pytest.raises(ValueError, match="SHA-256"):
            unpack_sealed(content[:length])
    with pytest.raises(ValueError, match="SHA-256"):
        unpack_sealed(content + b"\0")


def write_two(path: Path) -> None:
    for number in (1, 2):
        write_sealed(path, number)


HARM: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda path: path.write_bytes(flip_bit(path.read_bytes(), random.Random(path.name).randrange(400))),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARM)
def test_the_version_before_replaces_a_damaged_one(tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    write_two(path)
    assert read_sealed(path, "a number") == 2
    assert caplog.messages == []
    HARM[harm](path)
    damaged = path.read_bytes()
    assert read_sealed(path, "a number") == 1
    assert path.read_bytes() == damaged  # looking changes nothing
    assert read_sealed(path, "a number", restore=True) == 1
    for message in caplog.messages:
        assert message.startswith(f"{path} is not a number: it ")
        assert message.endswith("; file.before, the one before it, is used instead")
    assert [record.name for record in caplog.records] == ["snowball"] * 2
    assert read_sealed(path, "a number") == 1
    write_sealed(path, 2)
    assert (read_sealed(path, "a number"), read_sealed(locate_before(path), "a number")) == (2, 1)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("harm", HARM)
def test_if_both_versions_are_damaged_one_sentence_says_so(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "file"
    write_two(path)
    for each in (path, locate_before(path)):
        HARM[harm](each)
    with pytest.raises(RunError, match=r"^/.*file is not a number: it .*; nor is file\.before, the one before it: it "):
        read_sealed(path, "a number", restore=True)


def test_a_version_before_of_another_file_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_two(path)
    path.unlink()  # as an operator does to start again
    write_sealed(path, 7)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("linked", [True, False])
def test_two_versions_stay_whatever_the_file_system_can_do(
    tmp_path: Path, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    for number in range(4):
        write_sealed(path, number)
    assert (read_sealed(path, "a number"), read_sealed(locate_before(path), "a number")) == (3, 2)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "file.before"}


def test_a_crash_after_the_old_version_has_two_names_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_two(path)
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if target == path:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_sealed(path, 3)
    monkeypatch.undo()
    assert (read_sealed(path, "a number"), read_sealed(locate_before(path), "a number")) == (2, 2)
    write_sealed(path, 3)
    assert (read_sealed(path, "a number"), read_sealed(locate_before(path), "a number")) == (3, 2)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "file.before"}


def make_state(round: int) -> RunState:
    """Return a state with a large tensor of its own, and one that it shares with the state of the round before."""
    rows = [torch.full((LARGE,), float(number)) for number in (round, round + 1)]
    return RunState(round, torch.full((3,), float(round)), {"rows": rows})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for round in (1, 2, 3):
        save_state(make_state(round), tmp_path)
    return tmp_path


def find_tensor(folder: Path, number: float) -> Path:
    """Return the file of the large tensor of this number."""
    files = (folder / TENSOR_FOLDER).iterdir()
    return next(file for file in files if unpack_sealed(file.read_bytes())[0] == number)


def test_tensors_of_both_checkpoints_stay_once(checkpoint: Path) -> None:
    assert len(list((checkpoint / TENSOR_FOLDER).iterdir())) == 3  # 2, 3 and 4


@pytest.mark.parametrize(
    ("file", "harm"), [(file, harm) for file in ("state", "tensor") for harm in HARM] + [("tensor", "missing")]
)
def test_a_damaged_checkpoint_goes_back_by_a_round(
    checkpoint: Path, file: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = checkpoint / STATE_FILE if file == "state" else find_tensor(checkpoint, 4)
    {**HARM, "missing": Path.unlink}[harm](path)
    state = load_state(checkpoint, 3, LAYOUT)
    assert state is not None
    assert (state.round, state.base.tolist()) == (2, [2, 2, 2])
    assert [float(row[0]) for row in state.defense["rows"]] == [2, 3]
    (message,) = caplog.messages
    assert str(path if file == "state" else path.name) in message
    save_state(make_state(3), checkpoint)  # the round is repeated, and writes the same tensors
    again = load_state(checkpoint, 3, LAYOUT)
    assert again is not None
    assert (again.round, float(again.defense["rows"][1][0])) == (3, 4)
    assert len(caplog.messages) == 1


def test_a_damaged_tensor_that_both_checkpoints_use_is_refused(checkpoint: Path) -> None:
    find_tensor(checkpoint, 3).unlink()
    with pytest.raises(RunError, match=rf"{STATE_FILE} is not a checkpoint of a run: .*; nor is {STATE_FILE}\.before"):
        load_state(checkpoint, 3, LAYOUT)


def test_sampled_bits_of_a_checkpoint_never_give_another_state(tmp_path: Path) -> None:
    for round in (1, 2):
        save_state(RunState(round, torch.full((3,), float(round)), {"list": [round]}), tmp_path)
    path, draw = tmp_path / STATE_FILE, random.Random(1)
    good, before = path.read_bytes(), locate_before(path).read_bytes()
    for _ in range(100):
        path.write_bytes(flip_bit(good, draw.randrange(8 * len(good))))
        state = load_state(tmp_path, 2, LAYOUT)
        assert state is not None
        assert (state.round, state.base.tolist(), state.defense) == (1, [1, 1, 1], {"list": [1]})
        locate_before(path).write_bytes(before)
