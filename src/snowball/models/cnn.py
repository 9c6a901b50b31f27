"""The paper's convolutional network for small images: two convolutions, two dense layers, no biases.

Its footnote reads 32C5-MaxPool2-64C5-MaxPool2-FC256-FC. The published code has 128 instead of 256 and pads its poolings
by 1, so that 28x28 pixels leave maps of 7x7 and not 5x5.
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad, relu

from snowball.errors import SettingError

KERNEL, PADDING = 5, 1


class CNN(nn.Module):
    """conv 5x5 - pool - conv 5x5 - pool - dense - dense, with ReLU between."""

    def __init__(
        self, widths: tuple[int, int, int], input_shape: tuple[int, int, int], classes: int, pool_padding: int = 0
    ) -> None:
        super().__init__()
        self.pool_padding = pool_padding
        channels, height, width = input_shape
        middle = [_reduce_side(side, pool_padding) for side in (height, width)]
        rows, columns = (_reduce_side(side, pool_padding) for side in middle)
        if min(rows, columns) < 1:
            raise SettingError(f"an image of {height}x{width} is too small for two 5x5 convolutions with pooling")
        first, second, hidden = widths
        self.paddings = [_choose_padding(sides, pool_padding) for sides in ((height, width), middle)]
        self.conv1 = nn.Conv2d(channels, first, KERNEL, bias=False)
        self.conv2 = nn.Conv2d(first, second, KERNEL, bias=False)
        self.fc1 = nn.Linear(second * rows * columns, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of normalised images (n, channels, height, width)."""
        maps = self._pool(self.conv1(pad(inputs, self.paddings[0])))
        maps = self._pool(self.conv2(pad(maps, self.paddings[1])))
        scores: Tensor = self.fc2(relu(self.fc1(maps.flatten(1))))
        return scores

    def _pool(self, maps: Tensor) -> Tensor:
        """Pool, then apply ReLU: the same result as in the other order, with a quarter of the work."""
        return relu(max_pool2d(maps, 2, padding=self.pool_padding))


def _convolve_side(side: int) -> int:
    return side + 2 * PADDING - KERNEL + 1


def _reduce_side(side: int, pool_padding: int) -> int:
    """Return the side of a map after a convolution and a pooling; 0 if the convolution does not fit."""
    convolved = _convolve_side(side)
    return (convolved + 2 * pool_padding) // 2 if convolved > 0 else 0


def _choose_padding(sides: Sequence[int], pool_padding: int) -> list[int]:
    """Return the columns left and right and the rows above and below that are padded before a convolution.

    Pooling drops the last of an odd number of rows or columns, unless it pads. They are not computed, which gives the
    same bits: 10x10 instead of 11x11 outputs of the second convolution on 28x28 pixels.
    """
    height, width = (PADDING if pool_padding else PADDING - _convolve_side(side) % 2 for side in sides)
    return [PADDING, width, PADDING, height]
