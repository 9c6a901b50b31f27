"""The paper's networks, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

import torch
from torch import nn

from snowball.errors import SettingError
from snowball.models.cnn import Cnn

__all__ = ["MODELS", "Cnn", "ModelInfo", "build"]


@dataclass(frozen=True)
class ModelInfo:
    """An entry of the table of models.

    Attributes:
        make: the network for an input shape (channels, height, width) and a number of classes.
    """

    name: str
    summary: str
    make: Callable[[tuple[int, int, int], int], nn.Module]


MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo("cnn", "the paper's: 32C5-MaxPool2-64C5-MaxPool2-FC256-FC", partial(Cnn, (32, 64, 256))),
        ModelInfo("cnn-quarter", "a quarter as wide: 8C5-MaxPool2-16C5-MaxPool2-FC64-FC", partial(Cnn, (8, 16, 64))),
    )
}


def build(name: str, input_shape: tuple[int, int, int], classes: int, rng: torch.Generator) -> nn.Module:
    """A model with fresh weights that come from this generator alone."""
    if name not in MODELS:
        near = get_close_matches(name, MODELS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(MODELS)}"
        raise SettingError(f"{name!r} is not a model; {hint}")
    with torch.device("meta"):  # so that layers do not draw weights of their own from the global generator
        model = MODELS[name].make(input_shape, classes)
    model.to_empty(device="cpu")
    for weight in model.parameters():
        nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=rng)
    return model
