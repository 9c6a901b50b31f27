"""The paper's convolutional network for small images: two convolutions, two dense layers, no biases.

Its footnote reads 32C5-MaxPool2-64C5-MaxPool2-FC256-FC. The published code has 128 instead of 256 and pads its poolings
by 1, so that 28x28 pixels leave maps of 7x7 and not 5x5.
"""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

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
        rows, columns = (_reduce_side(_reduce_side(side, pool_padding), pool_padding) for side in (height, width))
        if min(rows, columns) < 1:
            raise SettingError(f"an image of {height}x{width} is too small for two 5x5 convolutions with pooling")
        first, second, hidden = widths
        self.conv1 = nn.Conv2d(channels, first, KERNEL, padding=PADDING, bias=False)
        self.conv2 = nn.Conv2d(first, second, KERNEL, padding=PADDING, bias=False)
        self.fc1 = nn.Linear(second * rows * columns, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of normalised images (n, channels, height, width)."""
        maps = self._pool(self.conv1(inputs))
        maps = self._pool(self.conv2(maps))
        scores: Tensor = self.fc2(relu(self.fc1(maps.flatten(1))))
        return scores

    def _pool(self, maps: Tensor) -> Tensor:
        """Pool, then apply ReLU: the same result as in the other order, with a quarter of the work."""
        return relu(max_pool2d(maps, 2, padding=self.pool_padding))


def _reduce_side(side: int, pool_padding: int) -> int:
    """Return the side of a map after a convolution and a pooling; 0 if the convolution does not fit."""
    convolved = side + 2 * PADDING - KERNEL + 1
    return (convolved + 2 * pool_padding) // 2 if convolved > 0 else 0
