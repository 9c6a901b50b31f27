"""The folders that data sets are looked for in."""

import os
from pathlib import Path

from snowball.errors import DataError


def data_folder() -> Path | None:
    """The folder that $SNOWBALL_DATA names, if it is set."""
    named = os.environ.get("SNOWBALL_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"SNOWBALL_DATA is {named!r}, which is not a folder")
    return folder


def cache_folder() -> Path:
    """Where downloads are kept for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "snowball"
