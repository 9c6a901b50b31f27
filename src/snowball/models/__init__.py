"""The paper's networks, and those of other packages, by name.

Any torch module can be trained: put a `ModelInfo` into `MODELS`, name what makes the module in the entry-point group
`snowball.models` of a package, or give `module:Class` as the model's name. Worker processes know a model from a module
that can be imported, or from the top level of the script that runs. What a network draws when it is made comes from the
seed, and so does dropout in training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from snowball.errors import SettingError
from snowball.models.cifar_cnn import CifarCnn
from snowball.models.cnn import Cnn
from snowball.models.gru import Gru
from snowball.models.randomness import drawing_from
from snowball.registry import Registry, suggest_or_list

__all__ = ["MODELS", "CifarCnn", "Cnn", "Gru", "ModelInfo", "build", "drawing_from"]

IMAGES, TEXTS = ("channels", "height", "width"), ("tokens", "width")


@dataclass(frozen=True)
class ModelInfo:
    """An entry of the table of models.

    Attributes:
        make: the network for the shape of a sample and a number of classes, with fresh weights.
        inputs: what the axes of a sample are, where it cannot have any other number of them.
    """

    name: str
    summary: str
    make: Callable[[tuple[int, ...], int], nn.Module]
    inputs: tuple[str, ...] = ()


def kaiming(network: Callable[..., nn.Module], *settings: Any) -> nn.Module:
    """A network without biases, with weights as the paper draws them: He et al. 2015, normal."""
    with torch.random.fork_rng([]):  # what layers draw of their own is thrown away, and not missed in the generator
        model = network(*settings)
    for weight in model.parameters():
        nn.init.kaiming_normal_(weight, nonlinearity="relu")
    return model


def describe_model(name: str, found: Any) -> ModelInfo:
    """Return the entry for a model from elsewhere: a `ModelInfo`, or what makes the network."""
    if isinstance(found, ModelInfo):
        return found
    if not callable(found):
        raise SettingError("it is neither a torch module's class, nor a function that makes one, nor a ModelInfo")
    summary = (found.__doc__ or "").strip().partition("\n")[0]
    return ModelInfo(name, summary or f"{found.__module__}:{getattr(found, '__qualname__', name)}", found)


MODELS: Registry[ModelInfo] = Registry(
    "snowball.models",
    {
        info.name: info
        for info in (
            ModelInfo(
                "cnn",
                "the paper's for MNIST: 32C5-MaxPool2-64C5-MaxPool2-FC256-FC",
                partial(kaiming, Cnn, (32, 64, 256)),
                IMAGES,
            ),
            ModelInfo(
                "cnn-published",
                "the published code's for MNIST: the same with padded poolings and FC128-FC",
                partial(kaiming, partial(Cnn, pool_padding=1), (32, 64, 128)),
                IMAGES,
            ),
            ModelInfo(
                "cnn-quarter",
                "a quarter as wide: 8C5-MaxPool2-16C5-MaxPool2-FC64-FC",
                partial(kaiming, Cnn, (8, 16, 64)),
                IMAGES,
            ),
            ModelInfo(
                "cifar-cnn",
                "the paper's for CIFAR-10: six 3x3 convolutions of 64, 128 and 256 maps, FC",
                partial(kaiming, CifarCnn, (64, 128, 256)),
                IMAGES,
            ),
            ModelInfo(
                "cifar-cnn-quarter",
                "a quarter as wide: six 3x3 convolutions of 16, 32 and 64 maps, FC",
                partial(kaiming, CifarCnn, (16, 32, 64)),
                IMAGES,
            ),
            ModelInfo(
                "gru",
                "the paper's for Sent140: bidirectional GRU of 16 channels a direction, FC256-FC",
                partial(kaiming, Gru, (16, 256)),
                TEXTS,
            ),
            ModelInfo(
                "gru-quarter",
                "a quarter as wide: bidirectional GRU of 4 channels a direction, FC64-FC",
                partial(kaiming, Gru, (4, 64)),
                TEXTS,
            ),
        )
    },
    adapt=describe_model,
)


def build(name: str, input_shape: tuple[int, ...], classes: int, rng: torch.Generator) -> nn.Module:
    """A model with fresh weights that come from this generator alone."""
    if name not in MODELS:
        raise SettingError(f"{name!r} is not a model{suggest_or_list(name, MODELS)}")
    info = MODELS[name]
    if info.inputs and len(input_shape) != len(info.inputs):
        raise SettingError(f"{name} takes samples of ({', '.join(info.inputs)}), not of shape {tuple(input_shape)}")
    with drawing_from(rng):
        model = info.make(input_shape, classes)
    frozen = [path for path, parameter in model.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise SettingError(f"{name} has parameters that are not trained, {', '.join(frozen)}: make them buffers")
    return model
