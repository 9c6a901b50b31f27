"""What clients send by NVFlare, as the guard takes it. Nothing of it is taken on trust but who sent it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from snowball.errors import UpdateError
from snowball.guard import Dropped, Reply
from snowball.guard.reply import describe_error, is_convertible
from snowball.updates import Arrays, as_tensor

CLIENT = "client_name"
"""Where the server says whose a result is, whatever the client wrote there."""


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
            dropped.append(Dropped(client, "error", describe_error(error)))
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
    if tensor.shape != before.shape or not is_convertible(tensor.dtype, before.dtype):  # no broadcasting
        return change
    return before.cpu() + tensor.to(before.dtype)
