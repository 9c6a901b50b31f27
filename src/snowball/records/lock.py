"""A lock that allows one run, or one sweep with its runs, per folder; its file says who holds it.

The operating system releases it when a process ends, even by a crash. A sweep shares its lock with its runs, so the
lock lasts until the last of them ends; each run also locks its own folder.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Literal

from snowball.errors import RunError
from snowball.records.files import explain_os_errors, make_folder
from snowball.records.text import escape_text

logger = getLogger("snowball")

LOCK_FILE = ".lock"

TIMEOUT_SECONDS = 5.0
"""How long to wait for a run that is stopping, or for the runs of a killed sweep, to end."""

RETRY_SECONDS = 0.1
"""Pause between two attempts."""

MAX_HOLDER_BYTES = 1000
"""How much of a lock file is read."""

Activity = Literal["run", "sweep"]


@contextmanager
def exclusive_lock(folder: Path, activity: Activity) -> Iterator[None]:
    """Keep other runs and sweeps out of a folder; a sweep's own runs take the same lock with `shared_lock`."""
    deadline = monotonic() + TIMEOUT_SECONDS
    with open_lock(folder) as file:
        while not (try_lock(file, fcntl.LOCK_EX) and (activity == "run" or try_lock(file, fcntl.LOCK_SH))):
            if monotonic() > deadline:
                raise RunError(
                    f"{describe_holder(file)} is using {folder}: wait until it ends, or choose another folder"
                )
            sleep(RETRY_SECONDS)
        write_holder(file, activity)
        yield


@contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock as a run of the sweep that uses it."""
    with open_lock(folder) as file:
        if not try_lock(file, fcntl.LOCK_SH):
            raise RunError(f"{describe_holder(file)} is using {folder} by now")
        yield


def open_lock(folder: Path) -> IO[bytes]:
    """Open the lock file; create the folder if needed."""
    make_folder(folder)
    path = folder / LOCK_FILE
    with explain_os_errors(path):
        return open(path, "a+b", 0, opener=open_without_links)


def open_without_links(path: str, flags: int) -> int:
    """Open a file, but not what a link leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def try_lock(file: IO[bytes], kind: int) -> bool:
    """Take the lock if it is free, and return whether that worked; a file system without locks only gives a warning."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # such as some cluster file systems
        logger.warning("%s cannot be locked (%s): let only one run or sweep use its folder", file.name, error.strerror)
    return True


def write_holder(file: IO[bytes], activity: Activity) -> None:
    """Write into the lock file which process holds it; on a full disk the lock holds all the same."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"activity": activity, "process": os.getpid(), "host": socket.gethostname(), "started": started}
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(holder).encode())


def describe_holder(file: IO[bytes]) -> str:
    """Say which process holds a lock, as far as its file tells."""
    try:
        holder = json.loads(os.pread(file.fileno(), MAX_HOLDER_BYTES, 0))
        names = [escape_text(str(holder[name])) for name in ("activity", "process", "host", "started")]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another run or sweep"
    activity, process, host, started = names
    return f"another {activity} (process {process} on {host}, since {started})"
