"""Reads a JSON file piece by piece, in the memory of its longest piece.

`json` reads a file whole, and its lists and numbers take up to 28 times the memory of their text.
"""

import json
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

CHUNK_BYTES = 1 << 20
"""Bytes that are read at a time."""

MAX_PIECE_BYTES = 1 << 18
"""Longest string, number or flat list: an image of 784 numbers of 20 digits has 16,000 bytes."""

MAX_SKIPPED_BYTES = 1 << 24
"""Most bytes of a file that are skipped, which takes longer than reading."""

BLANKS = re.compile(rb"[ \t\r\n]*+")
PIECE = re.compile(rb'"(?:[^"\\]|\\.)*+"|\[[^\[\]{}]*+\]|[-+.\w]++', re.DOTALL)
"""A string, a flat list, a number or a word."""

STRUCTURE = re.compile(rb'[\[\]{}"]')


class JSONStream:
    """The pieces of a JSON text in its order; a text of another form is a ValueError."""

    def __init__(self, stream: BufferedReader) -> None:
        self.stream, self.buffer, self.start, self.skipped = stream, b"", 0, 0

    def peek(self) -> bytes:
        """Return the first byte of the next piece; nothing at the end."""
        while True:
            self._fill()
            blanks = BLANKS.match(self.buffer, self.start)
            self.start = blanks.end() if blanks else self.start
            if self.start < len(self.buffer) or not self.buffer:
                return self.buffer[self.start : self.start + 1]

    def iterate_keys(self) -> Iterator[str]:
        """Yield the keys of the object that comes next; the caller reads or skips the value of each."""
        for _ in self._iterate(b"{", b"}"):
            if self.peek() != b'"':
                raise ValueError("Expecting a key in quotation marks")
            key = str(self.read_piece())
            self._take(b":")
            yield key

    def iterate_items(self) -> Iterator[None]:
        """Yield once for each entry of the list that comes next; the caller reads or skips it."""
        return self._iterate(b"[", b"]")

    def read_piece(self) -> Any:
        """Return the string, the number, the word or the flat list that comes next."""
        self.peek()
        self._fill()
        found = PIECE.match(self.buffer, self.start, self.start + MAX_PIECE_BYTES)
        if found is None:
            raise ValueError(f"Expecting a number, a string or a flat list of at most {MAX_PIECE_BYTES} bytes")
        self.start = found.end()
        return json.loads(found[0])

    def skip_value(self) -> None:
        """Skip the value that comes next, whatever its form."""
        if self.peek() not in (b"[", b"{"):
            self._count_skipped(len(str(self.read_piece())))
            return
        depth = 0
        while True:
            mark = self._find_structure()
            if mark == b'"':
                self._count_skipped(len(self.read_piece()))
                continue
            self.start += 1
            depth += 1 if mark in b"[{" else -1
            if depth == 0:
                return

    def expect_end(self) -> None:
        """Refuse a text that goes on."""
        if self.peek():
            raise ValueError("Extra data after its end")

    def _iterate(self, opening: bytes, closing: bytes) -> Iterator[None]:
        self._take(opening)
        if self.peek() == closing:
            self._take(closing)
            return
        while True:
            yield
            if self.peek() == closing:
                self._take(closing)
                return
            self._take(b",")

    def _take(self, expected: bytes) -> None:
        if self.peek() != expected:
            raise ValueError(f"Expecting {expected.decode()!r}, got {self.buffer[self.start : self.start + 1]!r}")
        self.start += 1

    def _find_structure(self) -> bytes:
        """Move to the next bracket or quotation mark, and return it."""
        while self.peek():
            found = STRUCTURE.search(self.buffer, self.start)
            end = found.start() if found else len(self.buffer)
            self._count_skipped(end - self.start + 1)
            self.start = end
            if found:
                return found[0]
        raise ValueError("Expecting the end of a value")

    def _count_skipped(self, count: int) -> None:
        self.skipped += count
        if self.skipped > MAX_SKIPPED_BYTES:
            raise ValueError(f"it has more than {MAX_SKIPPED_BYTES} bytes besides user_data")

    def _fill(self) -> None:
        """Read on unless the longest piece is in the buffer."""
        if len(self.buffer) - self.start < MAX_PIECE_BYTES:
            self.buffer, self.start = self.buffer[self.start :] + self.stream.read(CHUNK_BYTES), 0
