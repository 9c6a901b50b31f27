"""Where a copy of a data set comes from: the places it is looked for in, and what a run's record says of it."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from snowball.data.base import Location, Provenance, Split
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


def locate(find: Callable[[Path], Path | None]) -> Location | None:
    """The first find in $SNOWBALL_DATA and the user's cache."""
    if (folder := data_folder()) and (path := find(folder)):
        return Location("folder", path)
    if path := find(cache_folder()):
        return Location("cache", path)
    return None


def first_file(paths: Iterable[Path]) -> Path | None:
    """The first of these paths that is a file."""
    return next((path for path in paths if path.is_file()), None)


def missing(name: str, reason: str, needs: str, folder: str = "") -> DataError:
    """The error for a data set that is neither here nor to be had; `needs` is what to fetch, `folder` where it goes."""
    places = f"$SNOWBALL_DATA/{folder or name} or {cache_folder() / (folder or name)}"
    return DataError(f"{name} is not on this machine, and {reason}: put {needs} into {places}")


def provenance(
    location: Location, train: Split, test: Split, complete: bool | str, **more: str | int | float
) -> Provenance:
    """What the record of a run says of its data; the checksum is that of the contents, whatever files they come in.

    `complete` is the checksum that the complete set has, or what is known of it otherwise.
    """
    contents = contents_sha256(train, test)
    return {
        "source": location.source,
        "file": location.path.name,
        "complete": contents == complete if isinstance(complete, str) else complete,
        "train": len(train),
        "test": len(test),
        "sha256": contents,
        **more,
    }


def contents_sha256(*splits: Split) -> str:
    """The checksum of inputs and labels, these as bytes, split by split."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.inputs.numpy().data)
        digest.update(split.labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()
