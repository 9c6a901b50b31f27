"""Between a guard and a round on a server: which defense it may be, what goes in, and what comes out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.defenses import Ideal, LocalDefense, TrustingDefense, Verdict
from snowball.errors import SettingError, SnowballError
from snowball.guard.audit_log import evidence
from snowball.guard.reply import Sane, words_of
from snowball.records.audit import Entry
from snowball.server import Outcome, Received, refuse_broken
from snowball.updates import Layout

Tensors = dict[str, Tensor]
"""A model on the CPU, by name."""


def refuse_unfit(defense: Any) -> None:
    """Refuse what cannot judge a real federation's rounds."""
    if isinstance(defense, type) or not callable(defense):
        raise SettingError(f"a guard needs a defense such as SnowballPlus(), got {str(defense)[:60]}")
    for part in (defense, *getattr(defense, "members", ())):
        name = type(part).__name__
        if isinstance(part, LocalDefense | TrustingDefense):
            raise SettingError(f"{name} acts in training, which a guard has no part in: choose another defense")
        if isinstance(part, Ideal):
            raise SettingError(f"{name} is told who is malicious, which only a simulator knows: choose another defense")


def said(error: Exception) -> str:
    """What went wrong, in a sentence; errors that are not ours do not come as one."""
    return str(error) if isinstance(error, SnowballError) else words_of(error)


def take_in(base: Tensors, layout: Layout, sane: Sequence[Sane]) -> tuple[Tensor, Received]:
    """The global model as a row, and the replies as changes of it."""
    origin = layout.to_row({name: base[name] for name in layout.names})
    models = ({name: reply.tensors[name] for name in layout.names} for reply in sane)
    received = Received(
        layout.subtract(origin, models, len(sane)),
        torch.tensor([reply.examples for reply in sane], dtype=torch.float64),
        tuple(reply.client for reply in sane),
        layout,
        [untrained(reply.tensors, layout) for reply in sane],
    )
    return origin, received


def untrained(tensors: Tensors, layout: Layout) -> Tensors:
    """A model's tensors that are no part of its row."""
    return {name: tensor for name, tensor in tensors.items() if name not in layout.columns}


def rebuild(base: Tensors, layout: Layout, outcome: Outcome) -> Tensors:
    """The global model after a round, in its own types, which may hold less than those of rows."""
    trained = {name: tensor.to(base[name].dtype).clone() for name, tensor in layout.split(outcome.base).items()}
    tensors = trained | outcome.buffers
    refuse_broken(list(tensors.values()))
    return {name: tensors[name] for name in base}


def decision(verdict: Verdict, clients: Sequence[str]) -> Entry:
    """What a defense decided, for the audit."""
    return {
        "elected": names(clients, verdict.elected),
        "left_out": names(clients, ~verdict.elected),
        "facts": evidence(verdict, clients),
    }


def names(clients: Sequence[str], chosen: Tensor) -> list[str]:
    """The clients that a mask chooses."""
    return [client for client, here in zip(clients, chosen.tolist(), strict=True) if here]
