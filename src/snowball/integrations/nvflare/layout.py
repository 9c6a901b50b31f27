"""The tensors of a global model that the server does not know: those that most clients send."""

from collections import Counter
from collections.abc import Sequence

import torch
from nvflare.app_common.abstract.fl_model import FLModel
from torch import Tensor

from snowball.integrations.nvflare.results import client_of
from snowball.updates import Arrays, as_tensor

LAYOUT = tuple[tuple[str, tuple[int, ...], torch.dtype, bool], ...]
"""Names, shapes and types of a model's tensors, in their order, and whether they are torch's."""


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
