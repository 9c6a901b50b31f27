"""Keys that sign an audit: ed25519, in PEM files as `openssl` writes them."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from snowball.errors import MissingExtra, RunError
from snowball.records.files import explain_os_errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Read the key that signs."""
    with explain_missing_extra():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    with explain_os_errors(path):
        content = path.read_bytes()
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # a TypeError if it is encrypted
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise RunError(
            f"{path} is not a private key for ed25519: an unencrypted PEM file was expected, as"
            " `openssl genpkey -algorithm ed25519` writes it"
        )
    return key


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Read the key that checks signatures."""
    with explain_missing_extra():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    with explain_os_errors(path):
        content = path.read_bytes()
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise RunError(
            f"{path} is not a public key for ed25519: a PEM file was expected, as `openssl pkey -pubout` writes it"
        )
    return key


def fingerprint_key(key: "Ed25519PublicKey") -> str:
    """Return the SHA-256 of a public key in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def find_signer(keys: "Iterable[Ed25519PublicKey]", signature: bytes, content: bytes) -> "Ed25519PublicKey | None":
    """Return the key whose signature of the content this is; None if it is that of no key."""
    from cryptography.exceptions import InvalidSignature

    for key in keys:
        try:
            key.verify(signature, content)
        except InvalidSignature:
            continue
        return key
    return None


@contextmanager
def explain_missing_extra() -> Iterator[None]:
    """Say in one sentence that cryptography is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra("signed audits need cryptography: pip install 'cryptography>=42'") from error
