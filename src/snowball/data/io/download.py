"""Atomic downloads with checksums."""

import hashlib
from http.client import HTTPException
from pathlib import Path
from typing import IO, Protocol
from urllib.request import urlopen

from snowball.data.io.formats import MAX_UNPACKED_BYTES
from snowball.errors import DataError
from snowball.records.drafts import temporary_folder
from snowball.records.files import replace_file

CHUNK_BYTES = 1 << 16


class Readable(Protocol):
    """The part of a server's response that is used here."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, none at the end."""
        ...


def download_file(url: str, path: Path, checksum: str, timeout: float = 30) -> None:
    """Download a file. It appears at `path` only once it is complete and has this SHA-256."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url, timeout=timeout) as response, temporary_folder(path.parent) as folder:
            part = folder / path.name
            with part.open("wb") as file:
                found = copy_response(response, file)
            if found != checksum:
                raise DataError(f"{url} has the sha256 {found}, expected {checksum}")
            replace_file(part, path)
    except (OSError, HTTPException) as error:
        raise DataError(f"{url} cannot be downloaded to {path} ({error or type(error).__name__})") from error


def copy_response(response: Readable, file: IO[bytes]) -> str:
    """Write a response to a file and return its SHA-256."""
    digest = hashlib.sha256()
    size = 0
    while chunk := response.read(CHUNK_BYTES):
        size += len(chunk)
        if size > MAX_UNPACKED_BYTES:
            raise OSError(f"it is longer than the limit of {MAX_UNPACKED_BYTES} bytes")
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest()
