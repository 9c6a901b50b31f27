"""Backdoor triggers: marks that an attacker stamps on samples."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from snowball.errors import SettingError


class Trigger(Protocol):
    """A mark that can be put on raw samples."""

    def stamp(self, inputs: Tensor) -> Tensor:
        """A stamped copy of raw samples."""
        ...


@dataclass(frozen=True)
class PixelPatch:
    """Pixels set to one value in every channel.

    Attributes:
        pixels: (row, column) of each.
        value: the raw value they get, 0 to 255.
    """

    pixels: tuple[tuple[int, int], ...]
    value: int = 255

    def __post_init__(self) -> None:
        """Refuse a patch that no image could carry."""
        if not 0 <= self.value <= 255:
            raise SettingError(f"a pixel's value lies in 0..255, got {self.value}")
        if any(row < 0 or column < 0 for row, column in self.pixels):
            raise SettingError(f"rows and columns of a patch count from 0, got {self.pixels}")

    def stamp(self, inputs: Tensor) -> Tensor:
        """A copy of (..., height, width) raw samples with the patch on it."""
        height, width = inputs.shape[-2:]
        rows = [row for row, _ in self.pixels]
        columns = [column for _, column in self.pixels]
        if self.pixels and (max(rows) >= height or max(columns) >= width):
            raise SettingError(
                f"a patch down to pixel ({max(rows)}, {max(columns)}) is off an image of {height}x{width}"
            )
        stamped = inputs.clone()
        stamped[..., rows, columns] = self.value
        return stamped


def square(first: int, last: int, value: int = 255) -> PixelPatch:
    """A square patch over the rows and columns `first` to `last`, both included."""
    span = range(first, last + 1)
    return PixelPatch(tuple((row, column) for row in span for column in span), value)


WHITE_SQUARE = square(24, 26)
"""The paper's trigger on MNIST and Fashion-MNIST: white, 3x3, near the lower right corner."""

WHITE_SQUARE_PARTS = (
    PixelPatch(((25, 24), (26, 24), (26, 25))),  # the lower left corner
    PixelPatch(((24, 24), (25, 25), (26, 26))),  # the diagonal
    PixelPatch(((24, 25), (24, 26), (25, 26))),  # the upper right corner
)
"""The same cut in three, for attackers who share it out."""
