"""Data sets of images, and checks of the arrays that they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snowball.data.base import Dataset
from snowball.data.io.formats import corrupt

KEYS = ("x_train", "y_train", "x_test", "y_test")
"""The arrays of an archive that is already divided into training and test."""

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageDataset(Dataset):
    """Images of bytes.

    Attributes:
        mean: what is taken from pixels scaled to 0..1, one a channel.
        std: what they are then divided by, one a channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a sample."""
        channels, height, width = self.train.inputs.shape[1:]
        return channels, height, width

    def scale(self, inputs: Tensor) -> Tensor:
        """Raw pixels as float32 in 0..1."""
        return inputs.float() / 255

    def standardise(self, scaled: Tensor) -> Tensor:
        """Pixels in 0..1, shifted and scaled a channel."""
        mean = torch.tensor(self.mean, device=scaled.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=scaled.device).view(-1, 1, 1)
        return (scaled - mean) / std

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""
        return torch.randint(256, (count, *self.input_shape), generator=rng, dtype=torch.uint8)


def check_arrays(
    arrays: Sequence[Array], paths: Sequence[Path], shape: Sequence[int], classes: int, expected: str = ""
) -> None:
    """Refuse arrays that are not what `KEYS` promise; `expected` is the checksum of a good archive."""
    for images, labels in ((0, 1), (2, 3)):
        if fault := image_fault(arrays[images], shape):
            raise corrupt(paths[images], f"{KEYS[images]} {fault}", expected)
        if fault := label_fault(arrays[labels], len(arrays[images]), classes):
            raise corrupt(paths[labels], f"{KEYS[labels]} {fault}", expected)


def image_fault(images: Array, shape: Sequence[int]) -> str:
    """What is wrong with an array of images of this shape, if anything."""
    if images.dtype != np.uint8 or images.shape[1:] != tuple(shape) or not len(images):
        return f"is {images.dtype} {images.shape}, not uint8 (n, {', '.join(map(str, shape))})"
    return ""


def label_fault(labels: Array, count: int, classes: int) -> str:
    """What is wrong with the labels of `count` images, if anything."""
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (count,):
        return f"is {labels.dtype} {labels.shape}, not integers ({count},)"
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        return f"runs from {lowest} to {highest}, not within 0 to {classes - 1}"
    return ""
