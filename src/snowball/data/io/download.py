"""Downloads that arrive whole or not at all."""

import hashlib
import tempfile
from http.client import HTTPException
from pathlib import Path
from typing import IO, Protocol
from urllib.request import urlopen

from snowball.data.io.formats import LIMIT
from snowball.errors import DataError

CHUNK = 1 << 16


class Readable(Protocol):
    """The part of a server's answer that is used here."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""
        ...


def download(url: str, path: Path, checksum: str, timeout: float = 30) -> None:
    """Fetch a file whose checksum is known; it appears at `path` only once it is complete and has that checksum.

    A checksum of 64 digits is a sha256, any other an md5.
    """
    kind = "sha256" if len(checksum) == 64 else "md5"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url, timeout=timeout) as answer, tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder) / path.name
            with part.open("wb") as file:
                found = copy(answer, file, kind)
            if found != checksum:
                raise DataError(f"{url} is not what it should be: its {kind} is {found}, not {checksum}")
            part.replace(path)
    except (OSError, HTTPException) as error:
        raise DataError(f"{url} cannot be downloaded to {path} ({error or type(error).__name__})") from error


def copy(answer: Readable, file: IO[bytes], kind: str = "md5") -> str:
    """Write an answer to a file and give its checksum of this kind."""
    digest = hashlib.new(kind, usedforsecurity=False)
    size = 0
    while chunk := answer.read(CHUNK):
        size += len(chunk)
        if size > LIMIT:
            raise OSError(f"it is longer than the limit of {LIMIT} bytes")
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest()
