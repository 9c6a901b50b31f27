"""Turns NVFlare's results into replies for a guard. Only the sender's name is trusted: the server sets it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from snowball.arrays import Arrays, convert_to_tensor
from snowball.errors import UpdateError
from snowball.guard import Dropped, Reply
from snowball.guard.reply import describe_error, is_convertible

CLIENT_KEY = "client_name"
"""The key under which the server writes a result's sender, over whatever the client wrote there."""


def get_client(model: FLModel) -> str:
    """Return a result's sender, as the server names it."""
    return str((model.meta or {}).get(CLIENT_KEY, "unknown"))


def read_results(models: Iterable[FLModel], base: Arrays) -> tuple[list[Reply], list[Dropped]]:
    """Split results into replies for the guard and those that cannot be read at all."""
    replies, dropped = [], []
    for model in models:
        client = get_client(model)
        try:
            replies.append(Reply(client, get_examples(model), restore_model(model, base)))
        except Exception as error:  # a result can be wrong in any way and must not end the run
            dropped.append(Dropped(client, "error", describe_error(error)))
    return replies, dropped


def get_examples(model: FLModel) -> Any:
    """Return the weight that a client claims, or NVFlare's default of one."""
    return (model.meta or {}).get(FLMetaKey.NUM_STEPS_CURRENT_ROUND, 1)


def restore_model(model: FLModel, base: Arrays) -> Any:
    """Return a client's whole model, even if it sent only the difference from the global one."""
    if model.params_type == ParamsType.DIFF and isinstance(model.params, Mapping):
        return {name: apply_change(value, base.get(name)) for name, value in model.params.items()}
    return model.params


def apply_change(change: Any, own: Tensor | np.ndarray | None) -> Any:
    """Return a tensor of the global model after a change; an unusable change is returned for the guard to drop."""
    if own is None:
        return change
    before = convert_to_tensor(own, "the global model's")
    try:
        tensor = convert_to_tensor(change, "the client's").cpu()
    except (UpdateError, RuntimeError):
        return change
    if tensor.shape != before.shape or not is_convertible(tensor.dtype, before.dtype):  # no broadcasting
        return change
    return before.cpu() + tensor.to(before.dtype)
