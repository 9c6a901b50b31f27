"""Checks the arguments that an operator's code passes to a guard: a wrong one is refused before a round begins."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from snowball.arrays import convert_to_tensor, is_finite
from snowball.defenses import Ideal, InspectingDefense, LocalDefense, TrustingDefense
from snowball.errors import SettingError, UpdateError
from snowball.guard.reply import MAX_DETAIL_CHARS, Reply, describe_error
from snowball.server import Dropped

MAX_SHOWN_CHARS = 60


def refuse_unusable_defense(defense: Any) -> None:
    """Refuse a defense that cannot judge the rounds of a real federation."""
    if isinstance(defense, type) or not callable(defense):
        raise SettingError(f"a guard needs a defense such as SnowballPlus(), got {str(defense)[:MAX_SHOWN_CHARS]}")
    for part in (defense, *getattr(defense, "members", ())):
        name = type(part).__name__
        if isinstance(part, LocalDefense | TrustingDefense):
            raise SettingError(f"{name} acts in training, which a guard has no part in: choose another defense")
        if isinstance(part, InspectingDefense):
            raise SettingError(f"{name} runs the model on samples, and a guard has neither: choose another defense")
        if isinstance(part, Ideal):
            raise SettingError(f"{name} is told who is malicious, which only a simulator knows: choose another defense")


def refuse_bad_choices(choices: Mapping[str, tuple[Any, tuple[str, ...]]]) -> None:
    """Refuse a setting that is not one of its two possible words."""
    for name, (given, (one, other)) in choices.items():
        if given not in (one, other):
            raise SettingError(f"{name} is {one!r} or {other!r}, got {repr(given)[:MAX_SHOWN_CHARS]}")


def refuse_bad_settings(buffers: Any, bounds: Mapping[str, Any]) -> None:
    """Refuse a single name as buffers, and bounds that are not positive numbers."""
    if isinstance(buffers, str) or not isinstance(buffers, Collection):
        raise SettingError(f"buffers must be a list of tensor names, got {str(buffers)[:MAX_SHOWN_CHARS]!r}")
    for name, bound in bounds.items():
        if bound is not None and not (isinstance(bound, int | float) and bound > 0):
            raise SettingError(f"{name} must be a positive number, got {repr(bound)[:MAX_SHOWN_CHARS]}")
        if name == "max_share" and bound is not None and bound > 1:
            raise SettingError(f"max_share must be a share of the average, at most 1, got {bound}")


def refuse_bad_share(name: str, share: Any) -> None:
    """Refuse a share that is not a number from 0 to 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise SettingError(f"{name} must be a share from 0 to 1, got {repr(share)[:MAX_SHOWN_CHARS]}")


def refuse_bad_history(models: Any, keep_models: Any) -> None:
    """Refuse a folder of models without their number, or a number without a folder."""
    if type(keep_models) is not int or keep_models < 0:
        raise SettingError(f"keep_models must be a whole number from 0, got {repr(keep_models)[:MAX_SHOWN_CHARS]}")
    if (models is None) != (keep_models == 0):
        given = f"got {keep_models} and " + ("no folder" if models is None else f"{str(models)[:MAX_SHOWN_CHARS]!r}")
        raise SettingError(f"models is the folder of the last keep_models global models: set both or neither, {given}")
    if models is not None and Path(models).exists() and not Path(models).is_dir():
        raise SettingError(f"models must be a folder, and {str(models)[:MAX_SHOWN_CHARS]!r} is a file")


def refuse_lone_key(audit: Any, audit_key: Any) -> None:
    """Refuse a key for an audit that is not written."""
    if audit_key is not None and audit is None:
        raise SettingError("audit_key signs the lines of the audit: set audit, too")


def read_model(model: Any) -> dict[str, Tensor]:
    """Return the global model's tensors on the CPU; NaN and infinite numbers are refused."""
    if not isinstance(model, Mapping):
        kind = type(model).__name__
        raise UpdateError(f"the global model must be a mapping of names to tensors, got {kind}: pass its state_dict()")
    tensors = {name: convert_to_tensor(tensor, f"{name!r} of the global model").cpu() for name, tensor in model.items()}
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise UpdateError(f"{name!r} of the global model holds NaN or infinite numbers")
    return tensors


def list_replies(replies: Any) -> tuple[list[Reply], list[Dropped]]:
    """Return the replies that arrived, with their senders' ids as texts, and what is not a reply.

    If the iterable breaks, the replies before that are kept. A mapping or a single value is refused.
    """
    if isinstance(replies, Mapping) or not isinstance(replies, Iterable):
        raise UpdateError(f"replies must be a list of Reply, got {type(replies).__name__}: pass one Reply per client")
    listed: list[Reply] = []
    dropped: list[Dropped] = []
    for label, reply in iterate_safely(replies, "reply"):
        if isinstance(reply, Dropped):
            dropped.append(reply)
        elif not isinstance(reply, Reply):
            dropped.append(Dropped(label, "error", f"expected a Reply, got {type(reply).__name__}"))
        elif (client := read_id(reply)) is None:
            dropped.append(Dropped(label, "error", "its sender's id is not a text"))
        else:
            listed.append(replace(reply, client=client))
    return listed, dropped


def list_failures(failed: Any) -> list[Dropped]:
    """Return the clients whose answer could not be read, with their ids as texts."""
    listed = []
    for label, failure in iterate_safely(failed, "failure"):
        client = read_id(failure)
        if isinstance(failure, Dropped) and client is not None:
            listed.append(replace(failure, client=client))
        else:
            listed.append(Dropped(label, "error", f"expected a failure with its client, got {type(failure).__name__}"))
    return listed


def iterate_safely(values: Iterable[Any], kind: str) -> Iterator[tuple[str, Any]]:
    """Yield each value with a label; if the iterable breaks, yield that as the last one and stop."""
    number = 0
    try:
        for number, value in enumerate(values, 1):
            yield f"({kind} {number})", value
    except Exception as error:
        detail = f"no further {kind} could be read after {number}: {describe_error(error)}"
        yield f"({kind} {number + 1})", Dropped(f"({kind} {number + 1})", "error", detail[:MAX_DETAIL_CHARS])


def read_id(value: Any) -> str | None:
    """Return a client's id as a text; None if it cannot be one."""
    try:
        return str(value.client)
    except Exception:  # an id of any type may come from a framework
        return None


def list_asked(asked: Any) -> list[str] | None:
    """Return the ids of the clients that were asked, each once; None if that is unknown."""
    if asked is None:
        return None
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise UpdateError(f"asked must be a list of client ids, got {str(asked)[:MAX_SHOWN_CHARS]!r}")
    try:
        return list(dict.fromkeys(map(str, asked)))
    except Exception as error:
        raise UpdateError(f"asked must be a list of client ids: {describe_error(error)}") from error
