"""Writes the audit: its file, and a round's verdict, failures and models as JSON. See `snowball.records.audit`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from logging import getLogger
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from snowball.defenses import DEFENSES, Defense, Verdict
from snowball.errors import SnowballError
from snowball.guard.reply import describe_error
from snowball.records.audit import AuditEntry, JudgedRound, RecordedRound, read_audit
from snowball.records.audit_chain import START, hash_line, seal_entry
from snowball.records.files import append_bytes, read_lines_backwards, replace_non_finite
from snowball.records.signing import read_private_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

logger = getLogger("snowball")

FOREIGN = (
    "%s does not end with the line that the guard wrote last, of round %d: it was cut, moved, or changed by somebody"
    " else; `snowball audit --verify` will find that, too"
)
"""The warning if an audit is not as the guard left it."""

MAX_FACT_CHARS = 200
"""Longest text that replaces a fact which JSON cannot hold."""


@dataclass
class AuditLog:
    """The file of an audit, one line per round; a line reaches the disk whole or not at all.

    Each line follows the last one that the guard wrote. If somebody else cut, moved, replaced or extended the file,
    the next line does not follow the one before it in the file, and `snowball.records.audit_check` finds that.

    Attributes:
        key: signs each line; None for none.
        last: the round and the SHA-256 of the last line that the guard wrote; None if it does not know of any.
        resumed: whether `last` comes from a state, which may be older than the audit: after a crash, or on purpose.
    """

    path: Path
    key: "Ed25519PrivateKey | None" = None
    last: tuple[int, str] | None = None
    resumed: bool = False

    def append(self, entry: RecordedRound) -> None:
        """Add a round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = seal_entry(entry, self._find_previous(), self.key)
        append_bytes(self.path, line)
        self.last, self.resumed = (entry["round"], hash_line(line)), False

    def _find_previous(self) -> str:
        """Return the hash of the line that the next one follows; warn if that is not the last one of the file."""
        found = map(hash_line, read_lines_backwards(self.path))
        newest = next(found, START)
        if self.last is None:
            return newest
        round, digest = self.last
        if newest == digest or (self.resumed and digest in found):
            return newest
        logger.warning(FOREIGN, self.path, round)
        return digest

    def read_entries(self) -> list[AuditEntry]:
        """Return the rounds written so far."""
        return read_audit(self.path) if self.path.exists() else []


def open_audit(path: str | Path, key: str | Path | None) -> AuditLog:
    """Return the audit in a file, with the key that signs it; warn of a key that others can read."""
    if key is None:
        return AuditLog(Path(path))
    signing = read_private_key(Path(key))
    if Path(key).stat().st_mode & 0o077:
        logger.warning("others than its owner may use the key %s: run `chmod 600` on it", key)
    return AuditLog(Path(path), signing)


def enter_verdict(entry: JudgedRound, verdict: Verdict, clients: Sequence[str]) -> None:
    """Enter a defense's decision and its evidence."""
    entry["elected"] = select_clients(clients, verdict.elected)
    entry["left_out"] = select_clients(clients, ~verdict.elected)
    entry["suspects"] = [] if verdict.suspects is None else select_clients(clients, verdict.suspects)
    entry["clarity"] = read_clarity(verdict)
    entry["shares"] = read_shares(verdict, clients)
    entry["facts"] = encode_facts(verdict, clients)


def read_clarity(verdict: Verdict) -> float | None:
    """Return how clear a round was, if the defense measures it."""
    clarity = verdict.facts.get("clarity")
    return float(clarity) if isinstance(clarity, int | float) and isfinite(clarity) else None


def read_shares(verdict: Verdict, clients: Sequence[str]) -> dict[str, float]:
    """Return the share of the average of each elected client, if the defense says so."""
    shares = verdict.facts.get("shares")
    if not isinstance(shares, Tensor) or shares.shape != (len(clients),):
        return {}
    elected = select_clients(clients, verdict.elected)
    return dict(zip(elected, shares[verdict.elected].tolist(), strict=True))


def find_defense_name(defense: Defense) -> str:
    """Return the name of a defense in the table, or its class's name if it is not there."""
    return next((name for name in DEFENSES if DEFENSES[name] is type(defense)), type(defense).__name__)


def describe_settings(defense: Defense) -> dict[str, Any]:
    """Return a defense's settings as JSON values."""
    if not is_dataclass(defense):
        return {}
    return {field.name: encode_fact(getattr(defense, field.name)) for field in fields(defense)}


def select_clients(clients: Sequence[str], mask: Tensor) -> list[str]:
    """Return the clients that a mask selects."""
    return [client for client, selected in zip(clients, mask.tolist(), strict=True) if selected]


def encode_facts(verdict: Verdict, clients: Sequence[str]) -> dict[str, Any]:
    """Return a verdict's facts as JSON values; facts with one number per update become a dict by client."""
    facts: dict[str, Any] = {}
    for name, fact in verdict.facts.items():
        value = encode_fact(fact)
        per_client = isinstance(fact, Tensor) and fact.ndim == 1 and isinstance(value, list)
        per_client = per_client and len(value) == len(clients)
        facts[str(name)] = dict(zip(clients, value, strict=True)) if per_client else value
    return facts


def encode_fact(fact: Any) -> Any:
    """Return a fact as a JSON value, or its `repr` if JSON cannot hold it."""
    value = fact.tolist() if hasattr(fact, "tolist") else fact
    try:
        json.dumps(replace_non_finite(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(fact)[:MAX_FACT_CHARS]
    return value


def explain_failure(error: Exception) -> str:
    """Say in one sentence why a round failed; only our own errors already are sentences."""
    return str(error) if isinstance(error, SnowballError) else describe_error(error)


def explain_no_reply(entry: JudgedRound) -> str:
    """Say why a round has no reply to judge."""
    if not entry["dropped"]:
        return "there is no reply to judge"
    reasons = sorted({fault["reason"] for fault in entry["dropped"]})
    return f"there is no reply to judge: all dropped for {', '.join(reasons)}"


def hash_model(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a model's tensors with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
