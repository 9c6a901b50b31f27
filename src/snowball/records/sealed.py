"""Sealed files: one with a changed bit is never used; the version before stays beside it, and is read instead."""

import os
from logging import getLogger
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from snowball.errors import RunError
from snowball.records.files import explain_os_errors, locate_before, write_bytes
from snowball.serialization import Fetch, Store, leave_in_place, pack_sealed, refuse_stored, unpack_sealed

logger = getLogger("snowball")

ADVICE = "restore a copy, or remove the file to start again"
"""What to do if there is nothing to fall back to."""


def write_sealed(path: Path, value: Any, store: Store = leave_in_place) -> None:
    """Replace a file by a pytree, whole or not at all; the version before stays beside it."""
    write_bytes(path, pack_sealed(value, store), keep_before=True)


def read_sealed(path: Path, kind: str, fetch: Fetch = refuse_stored, restore: bool = False) -> Any:
    """Read a file or, with a warning, the version before it if it is damaged.

    With `restore`, that version takes the place of the damaged one, so that writing does not keep the damage instead.
    """
    with explain_os_errors(path):
        if not path.is_file():
            raise RunError(f"{path} is not {kind}: it is not a file")
    try:
        return read_version(path, fetch)
    except ValueError as damage:
        before = locate_before(path)
        fault = f"{path} is not {kind}: {damage}"
        if not before.exists():
            raise RunError(f"{fault}; {ADVICE}") from damage
    try:
        content = read_version(before, fetch)
    except ValueError as damage:
        raise RunError(f"{fault}; nor is {before.name}, the one before it: {damage}; {ADVICE}") from damage
    logger.warning("%s; %s, the one before it, is used instead", fault, before.name)
    if restore:
        with explain_os_errors(path):
            os.replace(before, path)  # noqa: PTH105
    return content


def read_version(path: Path, fetch: Fetch = refuse_stored) -> Any:
    """Read one file; damage of any kind is a ValueError."""
    try:
        return unpack_sealed(path.read_bytes(), fetch)
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
