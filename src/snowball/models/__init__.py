"""The paper's networks, residual ones, and those of other packages, by name.

Any torch module can be trained: put a `ModelInfo` into `MODELS`, name its class or a function in the entry-point group
`snowball.models` of a package, or give `module:Class` as the model's name. Worker processes find a model in a module
that can be imported, or at the top level of the script that runs. Weights and dropout depend only on the seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from snowball.errors import SettingError
from snowball.models.cifar_cnn import CifarCNN
from snowball.models.cnn import CNN
from snowball.models.gru import TextGRU
from snowball.models.own import refuse_untrainable
from snowball.models.randomness import draw_from
from snowball.models.resnet import ResNet, build_resnet
from snowball.registry import OWN_NAME, Registry, suggest_or_list

__all__ = ["CNN", "MODELS", "CifarCNN", "ModelInfo", "ResNet", "TextGRU", "build_model", "draw_from"]

IMAGE_AXES, TEXT_AXES = ("channels", "height", "width"), ("tokens", "width")


@dataclass(frozen=True)
class ModelInfo:
    """A known model.

    Attributes:
        make: makes the network from the shape of a sample and the number of classes, with fresh weights.
        inputs: names of the axes of a sample, if the model needs this number of axes; empty for any.
    """

    name: str
    summary: str
    make: Callable[[tuple[int, ...], int], nn.Module]
    inputs: tuple[str, ...] = ()


def build_with_kaiming(network: Callable[..., nn.Module], *settings: Any) -> nn.Module:
    """Build a network without biases, with weights as the paper draws them: He et al. 2015, normal."""
    with torch.random.fork_rng([]):  # layers also draw weights, which are replaced: restore the generator
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
                partial(build_with_kaiming, CNN, (32, 64, 256)),
                IMAGE_AXES,
            ),
            ModelInfo(
                "cnn-published",
                "the published code's for MNIST: the same with padded poolings and FC128-FC",
                partial(build_with_kaiming, partial(CNN, pool_padding=1), (32, 64, 128)),
                IMAGE_AXES,
            ),
            ModelInfo(
                "cnn-quarter",
                "a quarter as wide: 8C5-MaxPool2-16C5-MaxPool2-FC64-FC",
                partial(build_with_kaiming, CNN, (8, 16, 64)),
                IMAGE_AXES,
            ),
            ModelInfo(
                "cifar-cnn",
                "the paper's for CIFAR-10: six 3x3 convolutions of 64, 128 and 256 maps, FC",
                partial(build_with_kaiming, CifarCNN, (64, 128, 256)),
                IMAGE_AXES,
            ),
            ModelInfo(
                "cifar-cnn-quarter",
                "a quarter as wide: six 3x3 convolutions of 16, 32 and 64 maps, FC",
                partial(build_with_kaiming, CifarCNN, (16, 32, 64)),
                IMAGE_AXES,
            ),
            ModelInfo(
                "resnet8",
                "residual, 7 convolutions of 16, 32 and 64 maps, FC; group normalisation",
                partial(build_resnet, (16, 32, 64), 1, "group"),
                IMAGE_AXES,
            ),
            ModelInfo(
                "resnet8-bn",
                "the same with batch normalisation",
                partial(build_resnet, (16, 32, 64), 1, "batch"),
                IMAGE_AXES,
            ),
            ModelInfo(
                "resnet18",
                "residual, 17 convolutions of 64, 128, 256 and 512 maps, FC; group normalisation",
                partial(build_resnet, (64, 128, 256, 512), 2, "group"),
                IMAGE_AXES,
            ),
            ModelInfo(
                "resnet18-bn",
                "the same with batch normalisation",
                partial(build_resnet, (64, 128, 256, 512), 2, "batch"),
                IMAGE_AXES,
            ),
            ModelInfo(
                "gru",
                "the paper's for Sent140: bidirectional GRU of 16 channels per direction, FC256-FC",
                partial(build_with_kaiming, TextGRU, (16, 256)),
                TEXT_AXES,
            ),
            ModelInfo(
                "gru-quarter",
                "a quarter as wide: bidirectional GRU of 4 channels per direction, FC64-FC",
                partial(build_with_kaiming, TextGRU, (4, 64)),
                TEXT_AXES,
            ),
        )
    },
    adapt=describe_model,
)


def build_model(name: str, input_shape: tuple[int, ...], classes: int, rng: torch.Generator) -> nn.Module:
    """Build a model with fresh weights that depend only on this generator."""
    if name == OWN_NAME:
        raise SettingError("model.name = 'own' is a model from Python: give it as snowball.run(..., model=...)")
    if name not in MODELS:
        raise SettingError(f"{name!r} is not a model{suggest_or_list(name, MODELS)}")
    info = MODELS[name]
    if info.inputs and len(input_shape) != len(info.inputs):
        raise SettingError(f"{name} takes samples of ({', '.join(info.inputs)}), not of shape {tuple(input_shape)}")
    with draw_from(rng):
        model = info.make(input_shape, classes)
    refuse_untrainable(model, name)
    return model
