"""Checks the chain and the signatures of an audit, and finds the first line that was changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snowball.errors import RunError
from snowball.records.audit import AuditEntry, parse_entry
from snowball.records.audit_chain import START, hash_line, split_signature
from snowball.records.files import explain_os_errors, is_torn
from snowball.records.signing import find_signer, fingerprint_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class BrokenChain(RunError):  # noqa: N818
    """A line does not fit; `line` and `round` say which, if they are known."""

    def __init__(self, sentence: str, line: int | None = None, round: int | None = None) -> None:
        super().__init__(sentence)
        self.line, self.round = line, round


@dataclass(frozen=True)
class Link:
    """A line of an audit.

    Attributes:
        number: of the line, from 1.
        digest: the SHA-256 of the line.
        previous: what it holds as the SHA-256 of the line before it; None in lines of earlier versions.
        signed: whether it has a signature.
        signer: the fingerprint of the key that signed it; None if no key was given, or it is not signed.
    """

    number: int
    round: int
    digest: str
    previous: str | None
    signed: bool
    signer: str | None

    def __str__(self) -> str:
        return f"line {self.number} (round {self.round})"


@dataclass(frozen=True)
class Verification:
    """The result of checking an audit.

    Attributes:
        rounds: the number of complete lines, or of those before the first that does not fit.
        chained, chained_from: the number of lines in the chain, and the round of the first one.
        signed, signed_from: the number of signed lines, and the round of the first one.
        signers: the fingerprints of the keys that signed; empty if no key was given.
        torn: whether an incomplete line follows.
        after: the number of lines after the one that a guard's state remembers; None if no state was given.
        fault: what is wrong with the first line that does not fit; None if all do.
        line, round: its number and its round, if they are known.
    """

    rounds: int
    chained: int = 0
    chained_from: int | None = None
    signed: int = 0
    signed_from: int | None = None
    signers: tuple[str, ...] = ()
    torn: bool = False
    after: int | None = None
    fault: str | None = None
    line: int | None = None
    round: int | None = None


def verify_audit(
    path: Path, keys: "Sequence[Ed25519PublicKey]" = (), end: tuple[int, str] | None = None
) -> Verification:
    """Check every line of an audit.

    Args:
        path: the audit.
        keys: those that may have signed it; without one, signatures are not checked.
        end: the round and the hash of the last line that a guard's state remembers.
    """
    if not path.is_file():
        raise RunError(f"there is no audit in {path}: it is not a file")
    links: list[Link] = []
    with explain_os_errors(path), path.open("rb") as file:
        torn = is_torn(file)
        file.seek(0)
        try:
            for link in follow_chain(file, keys):
                links.append(link)
            refuse_unproven(links, bool(keys))
            after = None if end is None else count_later(links, *end)
        except BrokenChain as broken:
            return summarize_links(links, torn=torn, fault=str(broken), line=broken.line, round=broken.round)
    return summarize_links(links, torn=torn, after=after)


def follow_chain(lines: Iterable[bytes], keys: "Sequence[Ed25519PublicKey]") -> Iterator[Link]:
    """Yield each complete line that follows the one before it; the first that does not is a `BrokenChain`."""
    before: Link | None = None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        link = read_link(number, line[:-1], keys)
        if before is None:
            refuse_missing_start(link)
        else:
            refuse_gap(before, link)
        yield link
        before = link


def read_link(number: int, line: bytes, keys: "Sequence[Ed25519PublicKey]") -> Link:
    """Read a line and check its signature."""
    try:
        entry = parse_entry(line, f"line {number}")
    except RunError as error:
        raise BrokenChain(str(error), number) from error
    signer = find_line_signer(number, line, entry, keys) if keys and entry["signature"] is not None else None
    return Link(number, entry["round"], hash_line(line), entry["previous"], entry["signature"] is not None, signer)


def find_line_signer(number: int, line: bytes, entry: AuditEntry, keys: "Sequence[Ed25519PublicKey]") -> str:
    """Return the fingerprint of the key that signed a line."""
    parts = split_signature(line)
    key = find_signer(keys, *parts) if parts else None
    if key is None:
        fault = "has a wrong signature: it was changed, or signed with another key"
        raise BrokenChain(f"line {number} (round {entry['round']}) {fault}", number, entry["round"])
    return fingerprint_key(key)


def refuse_missing_start(link: Link) -> None:
    """Refuse a first line that follows another one."""
    if link.previous not in (None, START):
        raise BrokenChain(
            f"{link} follows a line that is not in this file: lines before it were removed, or moved to another file;"
            " if you moved them, put both files together, and verify that",
            link.number,
            link.round,
        )


def refuse_gap(before: Link, link: Link) -> None:
    """Refuse a line that does not follow the one before it, or lacks what the one before it has."""
    if before.signed and not link.signed:
        raise BrokenChain(f"{link} is not signed, although {before} is", link.number, link.round)
    if before.previous is not None and link.previous is None:
        raise BrokenChain(f"{link} lacks the hash of the line before it, which {before} has", link.number, link.round)
    if link.previous in (None, before.digest):
        return
    changed = "" if before.signer and link.signer else "one of the two was changed, or "
    first = before if link.signer and not before.signer else link  # a signature proves that a line is unchanged
    fault = f"{link} does not follow {before}: {changed}lines between them were removed, inserted or moved"
    raise BrokenChain(fault, first.number, first.round)


def refuse_unproven(links: Sequence[Link], signed: bool) -> None:
    """Refuse an audit without a chain, or without a signature where one is expected."""
    if links and all(link.previous is None for link in links):
        raise BrokenChain(
            "no line has the hash of the line before it: the audit is of an earlier version, and changes are not found"
        )
    if signed and links and not any(link.signed for link in links):
        raise BrokenChain("no line is signed, and a key is given")


def count_later(links: Sequence[Link], round: int, digest: str) -> int:
    """Return the number of lines after the one that a guard's state remembers; refuse an audit that lacks it."""
    for later, link in enumerate(reversed(links)):
        if link.digest == digest:
            return later
    raise BrokenChain(
        f"the last line that the guard's state remembers, of round {round}, is not in the audit: lines were cut off its"
        " end, or the state belongs to another audit"
    )


def summarize_links(links: Sequence[Link], **found: Any) -> Verification:
    """Return the result for the lines that fit."""
    chained = [link for link in links if link.previous is not None]
    signed = [link for link in links if link.signed]
    return Verification(
        len(links),
        chained=len(chained),
        chained_from=chained[0].round if chained else None,
        signed=len(signed),
        signed_from=signed[0].round if signed else None,
        signers=tuple(dict.fromkeys(link.signer for link in signed if link.signer)),
        **found,
    )
