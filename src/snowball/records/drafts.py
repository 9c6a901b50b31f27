"""Drafts of files, and temporary folders: locked while they are in use, so that those of killed processes can go.

Whoever removes a leftover locks it first, which fails while its process lives. It may be quicker than a process that
has just made a draft and not yet locked it; that process then makes another one.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

NAME = re.compile(r"\.snowball-[0-9a-f]{32}")
"""The names of drafts and temporary folders; nobody can guess one."""


@contextmanager
def open_draft(folder: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Create a file to write into a folder, and remove it at the end, unless it has replaced another one."""
    path, handle = create_locked(folder, create_file)
    with os.fdopen(handle, "wb") as file:
        try:
            yield path, file
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that only this user can open, and remove it at the end; first remove those of killed processes."""
    parent = parent or Path(tempfile.gettempdir())
    remove_leftovers(parent)
    path, handle = create_locked(parent, create_folder)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # what is still being written is removed at the next start
        os.close(handle)


def create_locked(folder: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """Create a file or a folder under a new name, and return it with a handle that locks it until it is closed."""
    while True:
        path = folder / f".snowball-{secrets.token_hex(16)}"
        handle = create(path)
        with suppress(OSError):  # a file system without locks: there, nothing is taken for a leftover
            fcntl.flock(handle, fcntl.LOCK_SH)
        if path.exists():
            return path, handle
        os.close(handle)


def create_file(path: Path) -> int:
    """Create a file, never through a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def create_folder(path: Path) -> int:
    """Create a folder of this user alone."""
    while True:
        path.mkdir(0o700)
        with suppress(FileNotFoundError):  # another process took it for a leftover
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this user left in a folder."""
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if NAME.fullmatch(path.name)]:
            remove_leftover(path)


def remove_leftover(path: Path) -> None:
    """Remove a draft or a temporary folder, unless it is in use or of another user."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would block
        try:
            status = os.fstat(handle)
            if status.st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if stat.S_ISDIR(status.st_mode) else path.unlink()
        finally:
            os.close(handle)
