import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from snowball.errors import SettingError
from snowball.guard.watched_file import WatchedFile
from snowball.settings import MAX_TOML_BYTES


def parse_number(content: Mapping[str, Any]) -> int:
    if not isinstance(content.get("number"), int):
        raise SettingError("it has no number")
    return int(content["number"])


BROKEN = {
    "not TOML": b"number = ",
    "not text": b"\xff\xfe\x00",
    "twice the same key": b"number = 1\nnumber = 2",
    "no number": b"other = 1",
    "deep": b"number = " + b"[" * 100_000,
    "large": b"#" * (MAX_TOML_BYTES + 1),
    "empty": b"",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_at_the_start(case: str, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_bytes(BROKEN[case])
    with pytest.raises(SettingError, match=r"file\.toml (cannot be used|is not a TOML file)"):
        WatchedFile(file, parse_number)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_edit_is_a_warning_until_it_is_mended(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file.toml"
    file.write_text("number = 1")
    watched = WatchedFile(file, parse_number)
    file.write_bytes(BROKEN[case])
    with caplog.at_level(logging.WARNING, "snowball"):
        assert [watched.read(), watched.read()] == [1, 1]
    assert caplog.text.count("what it said before stays in force") == 2
    file.write_text("number = 3")
    assert watched.read() == 3


def test_a_change_counts_even_within_one_tick_of_the_clock(tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text("number = 1")
    os.utime(file, (0, 0))
    watched = WatchedFile(file, parse_number)
    file.write_text("number = 2")
    os.utime(file, (0, 0))
    assert watched.read() == 2


def test_a_file_that_goes_away_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file.toml"
    file.write_text("number = 1")
    watched = WatchedFile(file, parse_number)
    file.unlink()
    with caplog.at_level(logging.WARNING, "snowball"):
        assert watched.read() == 1
    assert "there is no such file; what it said before stays in force" in caplog.text


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [lambda path: None, make_folder, os.mkfifo], ids=["nothing", "folder", "pipe"])
def test_what_is_no_file_is_refused_at_once(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(SettingError, match="there is no such file"):
        WatchedFile(tmp_path / "x", parse_number)


def test_a_path_that_cannot_be_is_refused() -> None:
    with pytest.raises(SettingError, match="cannot be"):
        WatchedFile(Path("a\0b"), parse_number)


def test_a_file_that_is_being_written_is_not_taken_for_an_empty_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x").write_text("a = 1")
    watched = WatchedFile(tmp_path / "x", dict)
    (tmp_path / "x").write_text("")
    assert watched.read() == {"a": 1}
    assert "is empty: write a comment into it if that is meant" in caplog.text
    (tmp_path / "x").write_text("# nothing")
    assert watched.read() == {}
    (tmp_path / "x").write_text("")
    (tmp_path / "y").write_text("")
    assert WatchedFile(tmp_path / "y", dict).read() == {}


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfnumber = 4")
    assert WatchedFile(tmp_path / "x", parse_number).read() == 4
