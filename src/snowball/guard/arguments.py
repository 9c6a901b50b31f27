"""Checks the arguments that an operator's code passes to a guard: a wrong one is refused before a round begins."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import Tensor

from snowball.defenses import Ideal, LocalDefense, TrustingDefense
from snowball.errors import SettingError, UpdateError
from snowball.guard.reply import Reply
from snowball.updates import convert_to_tensor

MAX_SHOWN_CHARS = 60


def refuse_unusable_defense(defense: Any) -> None:
    """Refuse a defense that cannot judge the rounds of a real federation."""
    if isinstance(defense, type) or not callable(defense):
        raise SettingError(f"a guard needs a defense such as SnowballPlus(), got {str(defense)[:MAX_SHOWN_CHARS]}")
    for part in (defense, *getattr(defense, "members", ())):
        name = type(part).__name__
        if isinstance(part, LocalDefense | TrustingDefense):
            raise SettingError(f"{name} acts in training, which a guard has no part in: choose another defense")
        if isinstance(part, Ideal):
            raise SettingError(f"{name} is told who is malicious, which only a simulator knows: choose another defense")


def refuse_bad_settings(mode: Any, buffers: Any, bounds: Mapping[str, Any]) -> None:
    """Refuse an unknown mode, a single name as buffers, and bounds that are not positive numbers."""
    if mode not in ("enforce", "monitor"):
        raise SettingError(f"mode is 'enforce' or 'monitor', got {mode!r}")
    if isinstance(buffers, str) or not isinstance(buffers, Collection):
        raise SettingError(f"buffers must be a list of tensor names, got {str(buffers)[:MAX_SHOWN_CHARS]!r}")
    for name, bound in bounds.items():
        if bound is not None and not (isinstance(bound, int | float) and bound > 0):
            raise SettingError(f"{name} must be a positive number, got {repr(bound)[:MAX_SHOWN_CHARS]}")
        if name == "max_share" and bound is not None and bound > 1:
            raise SettingError(f"max_share must be a share of the average, at most 1, got {bound}")


def read_model(model: Any) -> dict[str, Tensor]:
    """Return the global model's tensors on the CPU; NaN and infinite numbers are refused."""
    if not isinstance(model, Mapping):
        kind = type(model).__name__
        raise UpdateError(f"the global model must be a mapping of names to tensors, got {kind}: pass its state_dict()")
    tensors = {name: convert_to_tensor(tensor, f"{name!r} of the global model").cpu() for name, tensor in model.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UpdateError(f"{name!r} of the global model holds NaN or infinite numbers")
    return tensors


def list_replies(replies: Any) -> list[Reply]:
    """Return a round's replies as a list; anything but an iterable of `Reply` is refused."""
    if isinstance(replies, Mapping) or not isinstance(replies, Iterable):
        raise UpdateError(f"replies must be a list of Reply, got {type(replies).__name__}: pass one Reply per client")
    listed = list(replies)
    for index, reply in enumerate(listed):
        if not isinstance(reply, Reply):
            raise UpdateError(f"replies must be a list of Reply, got {type(reply).__name__} at index {index}")
    return listed


def list_asked(asked: Any) -> list[str] | None:
    """Return the ids of the clients that were asked, each once; None if that is unknown."""
    if asked is None:
        return None
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise UpdateError(f"asked must be a list of client ids, got {str(asked)[:MAX_SHOWN_CHARS]!r}")
    return list(dict.fromkeys(map(str, asked)))
