"""A TOML file that an operator edits while a federation runs."""

from collections.abc import Callable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any, Generic, TypeVar

from snowball.errors import SettingError
from snowball.settings import parse_toml, read_toml_text

T = TypeVar("T")

logger = getLogger("snowball")


class WatchedFile(Generic[T]):
    """The parsed content of a file; a broken edit leaves the last good content in force.

    Attributes:
        path: the file, which has to be good at the start.
        parse: returns what a TOML file's tables mean; raises a SettingError if they mean nothing.
    """

    def __init__(self, path: Path, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self.path, self.parse = path, parse
        self._text = self._read_text()
        self._content = self._parse_text(self._text)

    def read(self) -> T:
        """Return the content, which is parsed again if the file has changed; warn if it is broken."""
        try:
            found = self._read_text()
            if self._text and not found:  # some editors empty a file before they write it
                raise SettingError(f"{self.path} is empty: write a comment into it if that is meant")
            if found != self._text:
                self._content = self._parse_text(found)
                self._text = found
        except SettingError as error:
            logger.warning("%s; what it said before stays in force", error)
        return self._content

    def _read_text(self) -> str:
        if not self.path.is_file():  # opening a pipe would wait for ever
            raise SettingError(f"{self.path} cannot be used: there is no such file")
        return read_toml_text(self.path, self.path)

    def _parse_text(self, text: str) -> T:
        settings = parse_toml(text, self.path)
        try:
            return self.parse(settings)
        except SettingError as error:
            raise SettingError(f"{self.path} cannot be used: {error}") from error


def check_text(value: Any, what: str, max_chars: int) -> str:
    """Return a text from a file; refuse one that is empty, too long, or cannot be printed on one line."""
    if not isinstance(value, str) or not value.strip() or len(value) > max_chars or not value.isprintable():
        raise SettingError(f"{what} must be a printable text of 1 to {max_chars} characters, got {ascii(value)[:60]}")
    return value
