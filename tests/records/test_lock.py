import errno
import fcntl
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.errors import RunError
from snowball.records import lock
from snowball.records.lock import LOCK_FILE, Activity, exclusive_lock


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "TIMEOUT_SECONDS", 0.0)


@pytest.mark.parametrize("second", ["run", "sweep"])
@pytest.mark.parametrize("first", ["run", "sweep"])
def test_runs_and_sweeps_keep_each_other_out_of_a_folder(tmp_path: Path, first: Activity, second: Activity) -> None:
    with (
        exclusive_lock(tmp_path, first),
        pytest.raises(RunError, match=f"^another {first} "),
        exclusive_lock(tmp_path, second),
    ):
        pass
    with exclusive_lock(tmp_path, second):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b"\xff",
        b"[" * 900,
        json.dumps({"activity": "run"}).encode(),
        b'{"activity": ' * 70,
    ],
)
def test_a_holder_that_cannot_be_read_still_holds(tmp_path: Path, content: bytes) -> None:
    with exclusive_lock(tmp_path, "run"):
        (tmp_path / LOCK_FILE).write_bytes(content)
        with pytest.raises(RunError, match=r"^another run or sweep is using"), exclusive_lock(tmp_path, "run"):
            pass


def test_a_holder_is_shown_on_one_short_line(tmp_path: Path) -> None:
    hostile = {"activity": "run", "process": 1, "host": "\x1b[2J\n" + "x" * 500, "started": "now"}
    with exclusive_lock(tmp_path, "run"):
        (tmp_path / LOCK_FILE).write_text(json.dumps(hostile), encoding="utf-8")
        with pytest.raises(RunError) as caught, exclusive_lock(tmp_path, "run"):
            pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250 + len(str(tmp_path))


@pytest.mark.parametrize("make", [lambda path, elsewhere: path.symlink_to(elsewhere), lambda path, _: path.mkdir()])
def test_a_lock_file_that_is_a_link_or_a_folder_is_refused(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine", encoding="utf-8")
    (tmp_path / "run").mkdir()
    make(tmp_path / "run" / LOCK_FILE, elsewhere)
    with pytest.raises(RunError, match=f"{LOCK_FILE} cannot be used: "), exclusive_lock(tmp_path / "run", "run"):
        pass
    assert elsewhere.read_text(encoding="utf-8") == "mine"


def test_a_file_system_without_locks_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with caplog.at_level(logging.WARNING, "snowball"), exclusive_lock(tmp_path, "run"):
        pass
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path / LOCK_FILE} cannot be locked (No locks available)")
