"""The audit: a line of JSON a round, which says who was asked, who answered, who was left out, and why.

round, time               from 1; when the round was judged, UTC
mode                      "enforce" or "monitor"
outcome, reason           "aggregated", or "kept" and why the global model stays as it was
asked, answered, silent   client ids; `asked` is null where nobody knows
dropped                   {client, reason, detail} of each reply that was not judged; reasons are `REASONS`
elected, left_out         client ids: what the defense decided on those that were judged
averaged                  client ids that went into the model: the elected, or all judged in monitor mode
facts                     the defense's evidence: a number, or a number a judged client by id
model_before, model_after sha256 of the global model's tensors
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from snowball.defenses import Verdict
from snowball.records import append_line, loads, read_lines

Entry = dict[str, Any]
"""One line of an audit."""


@dataclass(frozen=True)
class AuditLog:
    """An audit's file; a line reaches the disk whole or not at all."""

    path: Path

    def append(self, entry: Entry) -> None:
        """Add a round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, entry)

    def entries(self) -> Iterator[Any]:
        """The rounds so far, unchecked."""
        return (loads(line, place) for line, place in read_lines(self.path))


def evidence(verdict: Verdict, clients: Sequence[str]) -> dict[str, Any]:
    """The facts of a verdict as JSON, those of single updates by client."""
    facts: dict[str, Any] = {}
    for name, fact in verdict.facts.items():
        if isinstance(fact, Tensor):
            values = fact.tolist()
            each = fact.ndim == 1 and len(values) == len(clients)
            facts[name] = dict(zip(clients, values, strict=True)) if each else values
        else:
            facts[name] = fact
    return facts


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 of a model's tensors, their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
