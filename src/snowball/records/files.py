"""Atomic files: written whole or not at all, read strictly, with one-sentence errors."""

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from snowball.errors import RunError
from snowball.records.drafts import open_draft

BLOCK_BYTES = 1 << 16
"""Bytes that are read at once from the end of a file."""


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as one line of JSON, without the newline."""
    return _encode_json(record, sort_keys=True).encode()


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to a file as a line of JSON: the whole line reaches the disk, or none of it."""
    append_bytes(path, encode_line(record))


def append_bytes(path: Path, line: bytes) -> None:
    """Add a line to a file: the whole line and its newline reach the disk, or none of it."""
    line += b"\n"
    if path.exists() and not path.is_file():
        raise RunError(f"{path} cannot be written: it exists and is not a regular file")
    with explain_os_errors(path), path.open("a+b", buffering=0) as file:
        end = _cut_torn_line(file)
        try:
            if file.write(line) != len(line):
                raise OSError("the disk is full")
            os.fsync(file.fileno())
            if end == 0:
                sync_folder(path.parent)
        except OSError:
            file.truncate(end)
            raise


def read_lines(path: Path) -> Iterator[tuple[bytes, str]]:
    """Read the complete lines of a file, each with its location; skip a last line that a crash left incomplete."""
    with explain_os_errors(path):
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        yield line, f"line {number} of {path}"


def read_lines_backwards(path: Path) -> Iterator[bytes]:
    """Read the complete lines of a file from the last one to the first, and no more of the file than is asked for."""
    if not path.is_file():
        return
    with explain_os_errors(path), path.open("rb") as file:
        position, rest, complete = file.seek(0, os.SEEK_END), b"", False
        while position:
            step = min(position, max(BLOCK_BYTES, len(rest)))  # it doubles within a line, which is then read once
            position -= step
            file.seek(position)
            rest, *lines = (file.read(step) + rest).split(b"\n")
            if lines and not complete:
                complete = True
                lines.pop()  # what follows the last newline
            yield from reversed(lines)
        if complete:
            yield rest


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file whole or not at all; numbers that are not finite become null."""
    write_bytes(Path(path), _encode_json(value, indent=2).encode() + b"\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file."""
    with explain_os_errors(Path(path)):
        content = Path(path).read_bytes()
    return parse_json(content, str(path))


def write_bytes(path: Path, content: bytes, keep_before: bool = False) -> None:
    """Write a draft next to the file, then replace the file: readers see the old content or the new.

    With `keep_before`, the old content stays beside it, as `locate_before` names it.
    """
    target = Path(os.path.realpath(path))
    with explain_os_errors(path):
        if target.exists() and not target.is_file():
            raise RunError(f"{path} cannot be written: it exists and is not a regular file")
        with open_draft(target.parent) as (draft, file):
            file.write(content)
            file.flush()
            replace_file(draft, target, keep_before)


def replace_file(draft: Path, target: Path, keep_before: bool = False) -> None:
    """Let a finished file replace another one, so that a loss of power cannot undo it."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    if keep_before:
        keep_version(target)
    os.replace(draft, target)  # noqa: PTH105
    sync_folder(target.parent)


def keep_version(target: Path) -> None:
    """Give a file a second name, for when it is replaced; if there is no file, remove what that name had."""
    before = locate_before(target)
    before.unlink(missing_ok=True)
    if target.exists():
        try:
            os.link(target, before)
        except OSError:  # such as a file system without links
            write_bytes(before, target.read_bytes())


def locate_before(path: Path) -> Path:
    """Return where the version before a file stays."""
    return path.with_name(f"{path.name}.before")


def sync_folder(folder: Path) -> None:
    """Let the names of a folder's files reach the disk, where the file system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


def replace_non_finite(value: Any) -> Any:
    """Return plain JSON with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: replace_non_finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(entry) for entry in value]
    return value


def check_fields(
    value: Any, fields: Mapping[str, Callable[[Any], bool]], fault: str, optional: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an object from a file if it has these fields and each passes its check; else raise `fault` and why.

    `optional` holds the values of fields that may be missing. Values in errors are escaped.
    """
    if not isinstance(value, dict):
        raise RunError(f"{fault}: an object was expected, got {type(value).__name__}")
    found = {**(optional or {}), **value}
    for name, fits in fields.items():
        if name not in found:
            raise RunError(f"{fault}: it has no {name!r}")
        if not fits(found[name]):
            raise RunError(f"{fault}: its {name!r} cannot be {ascii(found[name])[:60]}")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise RunError(f"{path} must hold a JSON object, not a {type(content).__name__}")
    return content


def _encode_json(value: Any, **layout: Any) -> str:
    return json.dumps(replace_non_finite(value), allow_nan=False, **layout)


def parse_json(content: bytes, where: str) -> Any:
    """Parse JSON, with None for numbers that are not finite; errors name `where`."""
    try:
        return json.loads(content, parse_float=_parse_float, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is not valid JSON: {error}") from error


def _parse_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _cut_torn_line(file: IO[bytes]) -> int:
    """Remove an incomplete last line, and return the length of the file after that."""
    if not is_torn(file):
        return file.seek(0, os.SEEK_END)
    file.seek(0)
    return file.truncate(file.read().rfind(b"\n") + 1)


def is_torn(file: IO[bytes]) -> bool:
    """Whether the last line of a file is incomplete."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
    return file.read(1) not in (b"", b"\n")


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless it exists."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def remove_path(path: Path) -> None:
    """Remove a file or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be used: {error.strerror or error}") from error
