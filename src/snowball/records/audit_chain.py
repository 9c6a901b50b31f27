"""The chain of an audit: each line holds the SHA-256 of the line before it, and may be signed with ed25519.

A hash covers the bytes of a line as they are on disk, without the newline. A signature is the last field of its line
and covers the bytes of the line without that field.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from snowball.records.files import encode_line

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

START = "0" * 64
"""Stands for the hash of the line before the first one."""

SIGNED_LINE = re.compile(rb'(\{.*), "signature": "([0-9a-f]{128})"\}')


def seal_entry(entry: Mapping[str, Any], previous: str, key: "Ed25519PrivateKey | None") -> bytes:
    """Return an entry as the line that follows the line with this hash."""
    line = encode_line({**entry, "previous": previous})
    return line if key is None else line[:-1] + f', "signature": "{key.sign(line).hex()}"}}'.encode()


def split_signature(line: bytes) -> tuple[bytes, bytes] | None:
    """Return the signature of a line and what it covers; None if the line does not end with one."""
    parts = SIGNED_LINE.fullmatch(line)
    return (bytes.fromhex(parts[2].decode()), parts[1] + b"}") if parts else None


def hash_line(line: bytes) -> str:
    """Return the SHA-256 of a line."""
    return hashlib.sha256(line).hexdigest()
