"""Drafts and temporary folders: nothing is written through links, and only what dead processes left is removed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snowball.records import drafts, files
from snowball.records.drafts import NAME, open_draft, remove_leftovers, temporary_folder
from snowball.records.files import append_line, write_bytes

KILLED = """
import os, signal, sys
from pathlib import Path
from snowball.records.drafts import open_draft, temporary_folder
folder = Path(sys.argv[1])
with open_draft(folder) as (draft, file), temporary_folder(folder) as inner:
    (inner / "deep").mkdir()
    (inner / "deep" / "file").write_bytes(b"1")
    print("ready", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".snowball-mine").write_bytes(b"")  # not a name of ours
    command = [sys.executable, "-c", KILLED, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        left = list_names(tmp_path)
        assert sum(bool(NAME.fullmatch(name)) for name in left) == 2
        remove_leftovers(tmp_path)
        assert list_names(tmp_path) == left
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert list_names(tmp_path) == left
    with temporary_folder(tmp_path) as folder:
        assert list_names(tmp_path) == sorted([".snowball-mine", folder.name])
    assert list_names(tmp_path) == [".snowball-mine"]


def test_links_and_pipes_are_never_taken_for_leftovers(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_bytes(b"1")
    (tmp_path / f".snowball-{'0' * 32}").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / f".snowball-{'1' * 32}")
    remove_leftovers(tmp_path)
    assert (tmp_path / "precious" / "file").exists()
    assert (tmp_path / f".snowball-{'0' * 32}").is_symlink()
    remove_leftovers(tmp_path / "absent")


def test_a_draft_is_not_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_bytes(b"1")
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 32)  # as if somebody had guessed it
    for make in (os.symlink, os.link):
        make(tmp_path / "victim", tmp_path / f".snowball-{'0' * 32}")
        with pytest.raises(files.RunError, match="File exists"):
            write_bytes(tmp_path / "file", b"2")
        assert (tmp_path / "victim").read_bytes() == b"1"
        (tmp_path / f".snowball-{'0' * 32}").unlink()


def test_a_draft_that_another_process_removed_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, times = drafts.fcntl.flock, []

    def remove_first(handle: int, kind: int) -> None:
        if not times:
            times.append(1)
            remove_leftovers(tmp_path)  # before the lock, which takes one of its own
        lock(handle, kind)

    monkeypatch.setattr(drafts.fcntl, "flock", remove_first)
    with open_draft(tmp_path) as (path, file):
        file.write(b"1")
        assert list_names(tmp_path) == [path.name]
    times.clear()
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert list_names(tmp_path) == []


def test_files_have_the_mode_of_the_umask_and_temporary_folders_are_private(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"1")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    with temporary_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700


def test_new_names_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    write_bytes(tmp_path / "file", b"1")
    assert synced == [tmp_path]
    append_line(tmp_path / "lines", {})
    assert synced == [tmp_path] * 2
    append_line(tmp_path / "lines", {})
    assert synced == [tmp_path] * 2


@pytest.mark.parametrize("number", [22, 13])
def test_a_file_system_that_cannot_sync_folders_is_no_fault(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse_folders(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):  # noqa: PTH112
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_bytes(tmp_path / "file", b"1")
    assert (tmp_path / "file").read_bytes() == b"1"
