"""Between NVFlare's results and the guard: what the guarded aggregator and the guarded controller have in common."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from logging import getLogger
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from torch import Tensor

from snowball.defenses import DEFENSES, Defense
from snowball.errors import SettingError, UpdateError
from snowball.guard import AuditLog, Dropped, Guard, Judgement, Reply
from snowball.guard.reply import fits, words_of
from snowball.tables import hint
from snowball.updates import Arrays, as_tensor

logger = getLogger("snowball")

LARGEST = 1e300
"""Metrics are below it, so that their mean is finite."""

CLIENT = "client_name"
"""Where the server says whose a result is, whatever the client wrote there."""

LAYOUT = tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
"""Names, shapes and types of a model's tensors, in their order, and whether they are torch's."""


class Gate:
    """A guard, its files, and what NVFlare's results are to it.

    Attributes:
        audit: the file that gets a line a round; a relative path is inside the run's folder, an empty one none.
        state: the file that the guard goes on from and leaves its state in, likewise.
    """

    def __init__(self, guard: Guard, audit: str, state: str) -> None:
        self.guard, self.audit, self.state = guard, audit, state
        self.folder: Path | None = None

    def start(self, folder: Path, rounds: int | None = None) -> None:
        """Open the files, once: where the run's folder is, only the server knows. `rounds` are those to come."""
        if self.folder is not None:
            return
        if self.audit:
            self.guard.log = AuditLog(folder / self.audit)
        if self.state and self.guard.load(folder / self.state):
            logger.info("The guard goes on after round %d, from %s", self.guard.round, folder / self.state)
        if rounds is not None and self.guard.rounds is None:
            self.guard.rounds = self.guard.round + rounds
        self.folder = folder

    def judge(
        self,
        base: Arrays,
        models: Iterable[FLModel],
        asked: Iterable[str] | None = None,
        failed: Iterable[Dropped] = (),
    ) -> Judgement:
        """Let the guard judge a round's results, write it down, and keep the guard's state."""
        replies, unreadable = read(models, base)
        judgement = self.guard(base, replies, asked, [*failed, *unreadable])
        try:
            if self.state and self.folder is not None:
                self.guard.save(self.folder / self.state)
        except Exception as error:  # the federation is worth more than its books
            logger.warning("The guard's state after round %d is not saved: %s", self.guard.round, error)
        entry = judgement.entry
        sizes = {part: len(entry[part]) for part in ("answered", "silent", "dropped", "left_out", "averaged")}
        logger.info("guard: round %d, %s: %s", entry["round"], entry["outcome"], sizes)
        return judgement


def defense_of(name: str, settings: Mapping[str, Any] | None) -> Defense:
    """A defense by its name in the table, with settings of plain types."""
    if name not in DEFENSES:
        raise SettingError(f"defense = {name!r} is not known{hint(str(name), DEFENSES)}")
    kind: Any = DEFENSES[name]
    known = [field.name for field in fields(kind)] if is_dataclass(kind) else [*(settings or ())]
    for setting in settings or ():
        if setting not in known:
            raise SettingError(f"{setting!r} is not a setting of {name}{hint(str(setting), known)}")
    return made(name, kind, dict(settings or {}))


def made(name: str, kind: Any, settings: dict[str, Any]) -> Defense:
    """A defense of a kind; groups of settings are dicts here, and tuples lists, as JSON has them."""
    try:
        defense: Defense = (
            TypeAdapter(kind).validate_python(settings) if settings and is_dataclass(kind) else kind(**settings)
        )
    except ValidationError as error:
        fault = error.errors()[0]
        raise SettingError(f"{name}.{fault['loc'][0]} = {fault['input']!r}: {fault['msg']}") from error
    except (TypeError, PydanticUserError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingError(f"{name} cannot be made from {', '.join(settings) or 'nothing'}: {reason}") from error
    return defense


def client_of(model: FLModel) -> str:
    """Whose a result is, as the server says."""
    return str((model.meta or {}).get(CLIENT, "unknown"))


def read(models: Iterable[FLModel], base: Arrays) -> tuple[list[Reply], list[Dropped]]:
    """Results as the guard takes them, and those that cannot be read at all."""
    replies, dropped = [], []
    for model in models:
        client = client_of(model)
        try:
            replies.append(Reply(client, examples_of(model), weights_of(model, base)))
        except Exception as error:  # a result can be wrong in any way, and must not end the run
            dropped.append(Dropped(client, "error", words_of(error)))
    return replies, dropped


def examples_of(model: FLModel) -> Any:
    """What a client says to weight it by; one where it says nothing, as NVFlare has it."""
    return (model.meta or {}).get(FLMetaKey.NUM_STEPS_CURRENT_ROUND, 1)


def weights_of(model: FLModel, base: Arrays) -> Any:
    """A client's whole model, where it sent it or what it changed."""
    if model.params_type == ParamsType.DIFF and isinstance(model.params, Mapping):
        return {name: moved(value, base.get(name)) for name, value in model.params.items()}
    return model.params


def moved(change: Any, own: Tensor | np.ndarray | None) -> Any:
    """A tensor of the global model after a change; a change that is none stays as it is, for the guard to name."""
    if own is None:
        return change
    before = as_tensor(own, "the global model's")
    try:
        tensor = as_tensor(change, "the client's").cpu()
    except (UpdateError, RuntimeError):
        return change
    if tensor.shape != before.shape or not fits(tensor.dtype, before.dtype):  # what broadcasts is no change, either
        return change
    return before.cpu() + tensor.to(before.dtype)


def layout_of(models: Sequence[FLModel]) -> LAYOUT | None:
    """The layout that more than half of the clients sent; a client counts once, by its first result."""
    first = {client_of(model): model for model in reversed(models)}
    votes = Counter(layout for model in first.values() if (layout := own_layout(model)))
    return next((layout for layout, count in votes.items() if 2 * count > len(first)), None)


def own_layout(model: FLModel) -> LAYOUT | None:
    """The layout of a result's tensors; None where it has none."""
    try:
        sent = [(name, as_tensor(value, name), isinstance(value, Tensor)) for name, value in model.params.items()]
        return tuple((name, tuple(tensor.shape), tensor.dtype, is_torch) for name, tensor, is_torch in sent)
    except Exception:
        return None


def zeros(layout: LAYOUT) -> Arrays:
    """A global model of nothing but zeros."""
    tensors = {name: torch.zeros(shape, dtype=dtype) for name, shape, dtype, _ in layout}
    return {name: tensors[name] if is_torch else tensors[name].numpy() for name, _, _, is_torch in layout}


def like(tensors: Mapping[str, Tensor], base: Arrays) -> dict[str, Any]:
    """Tensors as the global model's are: NumPy's arrays, or torch's."""
    return {name: tensor if isinstance(base[name], Tensor) else tensor.numpy() for name, tensor in tensors.items()}


def metrics_of(models: Iterable[FLModel], averaged: Sequence[str]) -> dict[str, float] | None:
    """The metrics that all of those averaged report as numbers, as their mean by examples."""
    try:
        chosen = {client_of(model): model for model in reversed(list(models)) if client_of(model) in averaged}
        reported = [numbers_of(model.metrics) for model in chosen.values()]
        weights = [float(np.asarray(examples_of(model)).item()) for model in chosen.values()]
        return mean_of(reported, weights) or None
    except Exception as error:  # whatever clients report, their models are worth more than their metrics
        logger.warning("The round has no metrics: %s", words_of(error))
        return None


def mean_of(reported: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The weighted means of what all have."""
    common = [name for name in (reported[0] if reported else ()) if all(name in metrics for metrics in reported)]
    total = sum(weights)
    return {
        name: sum(weight / total * metrics[name] for weight, metrics in zip(weights, reported, strict=True))
        for name in common
    }


def numbers_of(metrics: Any) -> dict[str, float]:
    """The metrics that are finite numbers."""
    values = metrics.items() if isinstance(metrics, Mapping) else ()
    numbers = {str(name): number_of(value) for name, value in values}
    return {name: number for name, number in numbers.items() if abs(number) < LARGEST}


def number_of(value: Any) -> float:
    """A metric's value; NaN for one that is no number."""
    try:
        return float(value) if isinstance(value, int | float | np.integer | np.floating) else nan
    except OverflowError:
        return nan
