"""Files that are written whole or not at all, and what is said of those that cannot be used."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import RunError
from snowball.records import files
from snowball.records.files import (
    append_bytes,
    append_line,
    check_fields,
    is_torn,
    make_folder,
    parse_json,
    read_json,
    read_lines,
    read_lines_backwards,
    read_object,
    remove_path,
    replace_non_finite,
    write_bytes,
    write_json,
)


def test_lines_are_read_with_their_locations(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert list(read_lines(path)) == []
    for number in range(3):
        append_line(path, {"b": number, "a": None})
    assert path.read_bytes().splitlines(keepends=True)[0] == b'{"a": null, "b": 0}\n'
    assert list(read_lines(path)) == [
        (f'{{"a": null, "b": {number}}}'.encode(), f"line {number + 1} of {path}") for number in range(3)
    ]


@pytest.mark.parametrize("torn", [b"{", b"{}", b"{}\n{", b"{}\n{}"])
def test_a_torn_line_of_any_length_goes(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "log").write_bytes(torn)
    append_bytes(tmp_path / "log", b'{"a": 1}')
    assert (tmp_path / "log").read_bytes() == (b"{}\n" if b"\n" in torn else b"") + b'{"a": 1}\n'


@pytest.mark.parametrize(
    ("content", "torn"),
    [(b"", False), (b"\n", False), (b"{}\n", False), (b"{", True), (b"{}\n{", True), (b"\n{}", True)],
)
def test_a_file_is_torn_that_does_not_end_with_a_line(content: bytes, torn: bool) -> None:
    assert is_torn(io.BytesIO(content)) == torn


@pytest.mark.parametrize("block", [1, 2, 3, 7])
@pytest.mark.parametrize("content", [b"", b"{", b"a\n", b"a\n\nbcdefgh\ni", b"\na\nbcdefghijkl\n"])
def test_lines_are_read_backwards_whatever_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, block: int
) -> None:
    (tmp_path / "log").write_bytes(content)
    in_one_block = list(read_lines_backwards(tmp_path / "log"))
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    assert in_one_block == list(read_lines_backwards(tmp_path / "log")) == content.split(b"\n")[-2::-1]
    assert list(read_lines_backwards(tmp_path / "missing")) == []


def test_a_line_that_is_written_in_part_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.FileIO):
        def write(self, line: Any) -> int:
            return super().write(line[:-3])

    append_bytes(tmp_path / "log", b'{"a": 1}')
    monkeypatch.setattr(Path, "open", lambda path, mode, buffering: FullDisk(path, mode))
    with pytest.raises(RunError, match="log cannot be used: the disk is full"):
        append_bytes(tmp_path / "log", b'{"a": 2}')
    monkeypatch.undo()
    assert (tmp_path / "log").read_bytes() == b'{"a": 1}\n'


@pytest.mark.parametrize("write", [append_bytes, write_bytes])
def test_a_folder_is_not_written_as_a_file(tmp_path: Path, write: Any) -> None:
    with pytest.raises(RunError, match="it exists and is not a regular file"):
        write(tmp_path, b"{}")


def test_the_whole_content_reaches_the_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: written.append(os.fstat(file).st_size))
    write_bytes(tmp_path / "a", b"12345")
    assert written[0] == 5


def test_a_draft_that_cannot_be_opened_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match="a cannot be used: Too many open files"):
        write_bytes(tmp_path / "a", b"")


def test_json_is_written_for_people_too(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"zero": 0.0, "pair": (1, float("nan")), "inner": {"x": float("inf")}})
    text = '{\n  "zero": 0.0,\n  "pair": [\n    1,\n    null\n  ],\n  "inner": {\n    "x": null\n  }\n}\n'
    assert (tmp_path / "a.json").read_text() == text
    assert read_object(tmp_path / "a.json") == {"zero": 0.0, "pair": [1, None], "inner": {"x": None}}


def test_zero_is_a_finite_number() -> None:
    assert replace_non_finite([0.0, -0.5, "a", None, True]) == [0.0, -0.5, "a", None, True]
    assert parse_json(b"[0.0, 0.5, 1e999, NaN]", "here") == [0.0, 0.5, None, None]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match=r"a\.json is not valid JSON: "):
        read_json(tmp_path / "a.json")


def test_only_objects_are_read_as_objects(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(RunError, match=r"a\.json must hold a JSON object, not a list"):
        read_object(tmp_path / "a.json")


def test_fields_are_checked_one_by_one() -> None:
    fields = {"a": lambda value: value == 1, "b": lambda value: value is None}
    assert check_fields({"a": 1, "b": None, "c": 3}, fields, "no") == {"a": 1, "b": None, "c": 3}
    assert check_fields({"a": 1}, fields, "no", {"b": None}) == {"a": 1, "b": None}
    for value, said in (
        ([], "no: an object was expected, got list"),
        ({"a": 1}, "no: it has no 'b'"),
        ({"a": "é" * 99, "b": None}, r"no: its 'a' cannot be '\\xe9"),
    ):
        with pytest.raises(RunError, match=said) as caught:
            check_fields(value, fields, "no")
        assert len(str(caught.value)) < 90


def test_folders_are_made_with_their_parents_and_may_exist(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file cannot be used: File exists"):
        make_folder(tmp_path / "file")


def test_a_link_to_a_folder_is_removed_and_the_folder_stays(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder" / "inner")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        remove_path(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    remove_path(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []
