"""A lock that allows one sweep per folder. The sweep shares it with its runs, so it lasts until the last of them ends.

The operating system releases it when a process ends, even by a crash.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from snowball.errors import RunError
from snowball.records.files import make_folder

LOCK_FILE = ".lock"

TIMEOUT_SECONDS = 5.0
"""How long to wait for the runs of a killed sweep to end."""

RETRY_SECONDS = 0.1
"""Pause between two attempts."""


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder; this sweep's runs take the same lock with `shared_lock`."""
    deadline = monotonic() + TIMEOUT_SECONDS
    with open_lock(folder) as file:
        while not (try_lock(file, fcntl.LOCK_EX) and try_lock(file, fcntl.LOCK_SH)):  # then share it with our runs
            if monotonic() > deadline:
                raise RunError(f"another sweep is using {folder}: wait until it ends, or choose another folder")
            sleep(RETRY_SECONDS)
        yield


@contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock as a run of the sweep that uses it."""
    with open_lock(folder) as file:
        if not try_lock(file, fcntl.LOCK_SH):
            raise RunError(f"another sweep is using {folder} by now")
        yield


def open_lock(folder: Path) -> IO[bytes]:
    """Open the lock file; create the folder if needed."""
    make_folder(folder)
    try:
        return (folder / LOCK_FILE).open("ab")
    except OSError as error:
        raise RunError(f"{folder / LOCK_FILE} cannot be used: {error.strerror or error}") from error


def try_lock(file: IO[bytes], kind: int) -> bool:
    """Take the lock if it is free, and return whether that worked."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
