"""Finds the tensors of a global model that the server does not know: those that most clients send."""

from collections import Counter
from collections.abc import Sequence

import torch
from nvflare.app_common.abstract.fl_model import FLModel
from torch import Tensor

from snowball.arrays import Arrays, convert_to_tensor
from snowball.integrations.nvflare._results import get_client

ModelFormat = tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
"""Name, shape and type of each tensor of a model, in order, and whether it is torch's."""


def find_majority_format(models: Sequence[FLModel]) -> ModelFormat | None:
    """Return the format that more than half of the clients sent; each client's first result counts."""
    first = {get_client(model): model for model in reversed(models)}
    votes = Counter(found for model in first.values() if (found := read_format(model)))
    return next((found for found, count in votes.items() if 2 * count > len(first)), None)


def read_format(model: FLModel) -> ModelFormat | None:
    """Return the format of a result's tensors, or None if it cannot be read."""
    try:
        sent = [
            (name, convert_to_tensor(value, name), isinstance(value, Tensor)) for name, value in model.params.items()
        ]
        return tuple((name, tuple(tensor.shape), tensor.dtype, is_torch) for name, tensor, is_torch in sent)
    except Exception:
        return None


def make_zeros(model_format: ModelFormat) -> Arrays:
    """Return a global model of zeros."""
    tensors = {name: torch.zeros(shape, dtype=dtype) for name, shape, dtype, _ in model_format}
    return {name: tensors[name] if is_torch else tensors[name].numpy() for name, _, _, is_torch in model_format}
