"""Image data sets, and checks of the arrays that they are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snowball.data.base import Dataset
from snowball.data.io.formats import make_corrupt_error

ARRAY_NAMES = ("x_train", "y_train", "x_test", "y_test")
"""The arrays of an archive that is already split into training and test samples."""

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageDataset(Dataset):
    """Images with one byte per channel and pixel.

    Attributes:
        mean: subtracted from pixels scaled to 0..1, one per channel.
        std: divisor after that, one per channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def black(self) -> float:
        """The raw value of the darkest pixel."""
        return 0

    @property
    def white(self) -> float:
        """The raw value of the brightest pixel."""
        return 255

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a sample."""
        channels, height, width = self.train.inputs.shape[1:]
        return channels, height, width

    def scale(self, inputs: Tensor) -> Tensor:
        """Convert raw pixels to float32 in 0..1."""
        return inputs.float() / 255

    def standardise(self, scaled: Tensor) -> Tensor:
        """Subtract the mean and divide by the deviation, per channel."""
        mean = torch.tensor(self.mean, device=scaled.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=scaled.device).view(-1, 1, 1)
        return (scaled - mean) / std

    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of uniform noise."""
        return torch.randint(256, (count, *self.input_shape), generator=rng, dtype=torch.uint8)

    def to_bytes(self, inputs: Tensor) -> Tensor:
        """Convert raw samples to uint8 pixels, to show them."""
        return inputs


@dataclass(frozen=True, eq=False, kw_only=True)
class FloatImageDataset(ImageDataset):
    """Images with float32 pixels of any range, which the model receives as they are."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @cached_property
    def black(self) -> float:
        """The lowest value of the training samples."""
        return float(self.train.inputs.min())

    @cached_property
    def white(self) -> float:
        """The highest value of the training samples."""
        return float(self.train.inputs.max())

    @property
    def span(self) -> float:
        """The difference between white and black; 1 if all pixels are equal."""
        return self.white - self.black or 1.0

    def scale(self, inputs: Tensor) -> Tensor:
        """Map black to 0 and white to 1."""
        return (inputs - self.black) / self.span

    def standardise(self, scaled: Tensor) -> Tensor:
        """Map 0 back to black and 1 to white."""
        return scaled * self.span + self.black

    def normalise(self, inputs: Tensor) -> Tensor:
        """Return raw samples unchanged."""
        return inputs

    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of uniform noise."""
        return self.standardise(torch.rand(count, *self.input_shape, generator=rng))

    def to_bytes(self, inputs: Tensor) -> Tensor:
        """Convert raw samples to uint8 pixels, to show them."""
        return (self.scale(inputs).clamp(0, 1) * 255).round().to(torch.uint8)


def check_arrays(
    arrays: Sequence[Array], paths: Sequence[Path], shape: Sequence[int], classes: int, expected: str = ""
) -> None:
    """Reject arrays that do not fit `ARRAY_NAMES`; `expected` is the checksum of a good archive."""
    for images, labels in ((0, 1), (2, 3)):
        if fault := find_image_fault(arrays[images], shape):
            raise make_corrupt_error(paths[images], f"{ARRAY_NAMES[images]} {fault}", expected)
        if fault := find_label_fault(arrays[labels], len(arrays[images]), classes):
            raise make_corrupt_error(paths[labels], f"{ARRAY_NAMES[labels]} {fault}", expected)


def find_image_fault(images: Array, shape: Sequence[int]) -> str:
    """Describe the fault of an array of images of this shape; empty if there is none."""
    if images.dtype != np.uint8 or images.shape[1:] != tuple(shape) or not len(images):
        return f"is {images.dtype} {images.shape}, not uint8 (n, {', '.join(map(str, shape))})"
    return ""


def find_label_fault(labels: Array, count: int, classes: int) -> str:
    """Describe the fault of the labels of `count` images; empty if there is none."""
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (count,):
        return f"is {labels.dtype} {labels.shape}, not integers ({count},)"
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        return f"runs from {lowest} to {highest}, not within 0 to {classes - 1}"
    return ""
