"""One sweep at a time in a folder: a lock that a sweep shares with its runs, so that it lasts until the last one ends.

The system lets go of it when a process ends, however that comes about.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from snowball.errors import RunError
from snowball.records.files import make_folder

LOCK = ".lock"

PATIENCE = 5.0
"""Seconds for the runs of a sweep that was killed to notice."""

PAUSE = 0.1
"""Seconds between two tries."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder."""
    deadline = monotonic() + PATIENCE
    with open_lock(folder) as file:
        while not (have(file, fcntl.LOCK_EX) and have(file, fcntl.LOCK_SH)):  # alone first, then with its own runs
            if monotonic() > deadline:
                raise RunError(f"another sweep is at work in {folder}: wait for its end, or give another --out")
            sleep(PAUSE)
        yield


@contextmanager
def belonging(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder, as a run of the sweep that is at work there."""
    with open_lock(folder) as file:
        if not have(file, fcntl.LOCK_SH):
            raise RunError(f"another sweep is at work in {folder} by now")
        yield


def open_lock(folder: Path) -> IO[bytes]:
    """The file that is locked, in a folder that is made for it."""
    make_folder(folder)
    try:
        return (folder / LOCK).open("ab")
    except OSError as error:
        raise RunError(f"{folder / LOCK} cannot be used: {error.strerror or error}") from error


def have(file: IO[bytes], kind: int) -> bool:
    """Whether a lock can be had at once; it is, then."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
