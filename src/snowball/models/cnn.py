"""The paper's convolutional network for small images: two convolutions, two dense layers, no biases."""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from snowball.errors import SettingError

KERNEL, PADDING = 5, 1


class Cnn(nn.Module):
    """conv 5x5 - pool - conv 5x5 - pool - dense - dense, with ReLU between."""

    def __init__(self, widths: tuple[int, int, int], input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        rows, columns = _reduced(_reduced(height)), _reduced(_reduced(width))
        if min(rows, columns) < 1:
            raise SettingError(f"an image of {height}x{width} is too small for two 5x5 convolutions with pooling")
        first, second, hidden = widths
        self.conv1 = nn.Conv2d(channels, first, KERNEL, padding=PADDING, bias=False)
        self.conv2 = nn.Conv2d(first, second, KERNEL, padding=PADDING, bias=False)
        self.fc1 = nn.Linear(second * rows * columns, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores (n, classes) of normalised images (n, channels, height, width)."""
        maps = relu(max_pool2d(self.conv1(inputs), 2))  # the same as the other way round, on a quarter of the numbers
        maps = relu(max_pool2d(self.conv2(maps), 2))
        scores: Tensor = self.fc2(relu(self.fc1(maps.flatten(1))))
        return scores


def _reduced(side: int) -> int:
    """What a convolution and a pooling leave of a side."""
    return (side + 2 * PADDING - KERNEL + 1) // 2
