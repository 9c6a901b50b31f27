"""The inputs of a model's output layer, which are the features that its classes are told apart by."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from snowball.errors import SettingError


@torch.no_grad()
def compute_features(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the (n, f) inputs of the linear layer that runs last; refuse a model that runs none."""
    with watch_linear_inputs(model) as seen:
        model(inputs)
    if not seen:
        kind = type(model).__name__
        raise SettingError(f"{kind} runs no linear layer, whose inputs would be its features: choose another defense")
    return seen[-1].reshape(len(inputs), -1)


@contextmanager
def watch_linear_inputs(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the inputs of all linear layers in a list while the model runs, in the order in which the layers do."""
    seen: list[Tensor] = []

    def keep_inputs(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    hooks = [layer.register_forward_pre_hook(keep_inputs) for layer in model.modules() if isinstance(layer, nn.Linear)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
