"""Writes an audit: its file, and the evidence and models of a round as JSON. `snowball.records.audit` is the format."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snowball.defenses import Verdict
from snowball.records.audit import Entry, read_audit
from snowball.records.files import append_line, finite

LONGEST = 200
"""Characters of a fact that is no number."""


@dataclass(frozen=True)
class AuditLog:
    """An audit's file; a line reaches the disk whole or not at all."""

    path: Path

    def append(self, entry: Entry) -> None:
        """Add a round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, entry)

    def entries(self) -> list[Entry]:
        """The rounds so far."""
        return read_audit(self.path) if self.path.exists() else []


def evidence(verdict: Verdict, clients: Sequence[str]) -> dict[str, Any]:
    """The facts of a verdict as JSON, those of single updates by client."""
    facts: dict[str, Any] = {}
    for name, fact in verdict.facts.items():
        value = plain(fact)
        each = isinstance(fact, Tensor) and fact.ndim == 1 and isinstance(value, list) and len(value) == len(clients)
        facts[str(name)] = dict(zip(clients, value, strict=True)) if each else value
    return facts


def plain(fact: Any) -> Any:
    """A fact as JSON has it; in words where JSON cannot."""
    value = fact.tolist() if hasattr(fact, "tolist") else fact
    try:
        json.dumps(finite(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(fact)[:LONGEST]
    return value


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of a model's tensors, their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
