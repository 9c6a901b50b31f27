"""Locates copies of data sets, and describes them for a run's record."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from snowball.data.base import Location, Provenance, Split
from snowball.errors import DataError


def find_data_folder() -> Path | None:
    """Return the folder in $SNOWBALL_DATA; None if it is not set."""
    named = os.environ.get("SNOWBALL_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"SNOWBALL_DATA is {named!r}, which is not a folder")
    return folder


def get_cache_folder() -> Path:
    """Return the folder of this user's downloads and parsed data."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "snowball"


def locate_copy(find: Callable[[Path], Path | None]) -> Location | None:
    """Locate a copy in $SNOWBALL_DATA or else in the user's cache; `find` searches one folder."""
    if (folder := find_data_folder()) and (path := find(folder)):
        return Location("folder", path)
    if path := find(get_cache_folder()):
        return Location("cache", path)
    return None


def find_first_file(paths: Iterable[Path]) -> Path | None:
    """Return the first of these paths that is a file."""
    return next((path for path in paths if path.is_file()), None)


def make_missing_error(name: str, reason: str, needs: str, folder: str = "") -> DataError:
    """Return the error for a data set that is not available; `needs` says what to fetch, `folder` where it goes."""
    folders = f"$SNOWBALL_DATA/{folder or name} or {get_cache_folder() / (folder or name)}"
    return DataError(f"{name} is not on this machine, and {reason}: put {needs} into {folders}")


def describe_provenance(
    location: Location, train: Split, test: Split, complete: bool | str, **more: str | int | float
) -> Provenance:
    """Describe a data set for a run's record. The checksum covers the contents, not the file format.

    `complete` is the checksum of the complete set, or else whether this copy is complete.
    """
    contents = hash_splits(train, test)
    return {
        "source": location.source,
        "file": location.path.name,
        "complete": contents == complete if isinstance(complete, str) else complete,
        "train": len(train),
        "test": len(test),
        "sha256": contents,
        **more,
    }


def hash_splits(*splits: Split) -> str:
    """Return a checksum of inputs and labels, labels as bytes, split by split."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.inputs.numpy().data)
        digest.update(split.labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()
