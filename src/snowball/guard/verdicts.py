"""Between a guard and its defense: which it may be, what it is given, and whether its verdict can be carried out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.audits import Entry
from snowball.defenses import Ideal, LocalDefense, TrustingDefense, Verdict
from snowball.errors import SettingError, SnowballError, UpdateError
from snowball.guard.audit import evidence
from snowball.guard.reply import Sane, words_of
from snowball.updates import Layout, Updates

Tensors = dict[str, Tensor]
"""A model on the CPU, by name."""


def refuse_unfit(defense: Any) -> None:
    """Refuse what cannot judge a real federation's rounds."""
    if isinstance(defense, type) or not callable(defense):
        raise SettingError(f"a guard needs a defense such as Snowball(), got {str(defense)[:60]}")
    for part in (defense, *getattr(defense, "members", ())):
        name = type(part).__name__
        if isinstance(part, LocalDefense | TrustingDefense):
            raise SettingError(f"{name} acts in training, which a guard has no part in: choose another defense")
        if isinstance(part, Ideal):
            raise SettingError(f"{name} is told who is malicious, which only a simulator knows: choose another defense")


def check_verdict(verdict: Verdict, updates: Updates) -> None:
    """Refuse a verdict that cannot be carried out."""
    rows, width = updates.values.shape
    if verdict.elected.shape != (rows,) or verdict.elected.dtype != torch.bool:
        raise UpdateError(f"the defense elects by {describe(verdict.elected)}, {rows} bools are needed")
    if verdict.delta.shape != (width,) or not verdict.delta.is_floating_point():
        raise UpdateError(f"the defense's average is {describe(verdict.delta)}, {width} numbers are needed")
    if not verdict.delta.isfinite().all():
        raise UpdateError("the defense's average holds NaN or infinite numbers")


def describe(tensor: Tensor) -> str:
    """A tensor's type and shape in words."""
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def said(error: Exception) -> str:
    """What went wrong, in a sentence; errors that are not ours do not come as one."""
    return str(error) if isinstance(error, SnowballError) else words_of(error)


def updates_of(base: Tensors, layout: Layout, sane: Sequence[Sane]) -> Updates:
    """The replies as a matrix of changes."""
    trained = {name: base[name] for name in layout.names}
    states = [{name: reply.tensors[name] for name in layout.names} for reply in sane]
    return Updates.from_states(trained, states, [reply.examples for reply in sane], [reply.client for reply in sane])


def rebuilt(base: Tensors, layout: Layout, row: Tensor) -> Tensors:
    """A model's trained tensors from a row, in their own types."""
    return {name: tensor.to(base[name].dtype).clone() for name, tensor in layout.split(row).items()}


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
