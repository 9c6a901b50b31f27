"""Writes the audit: its file, and a round's verdict, failures and models as JSON. See `snowball.records.audit`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snowball.defenses import DEFENSES, Defense, Verdict
from snowball.errors import SnowballError
from snowball.guard.reply import describe_error
from snowball.records.audit import AuditEntry, JudgedRound, read_audit
from snowball.records.files import append_line, replace_non_finite

MAX_FACT_CHARS = 200
"""Longest text that replaces a fact which JSON cannot hold."""


@dataclass(frozen=True)
class AuditLog:
    """The file of an audit, one line per round; a line reaches the disk whole or not at all."""

    path: Path

    def append(self, entry: AuditEntry) -> None:
        """Add a round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, entry)

    def read_entries(self) -> list[AuditEntry]:
        """Return the rounds written so far."""
        return read_audit(self.path) if self.path.exists() else []


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
