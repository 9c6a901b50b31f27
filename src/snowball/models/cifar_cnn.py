"""The paper's convolutional network for CIFAR-10: six convolutions in three pairs, one dense layer, no biases.

Its footnote reads 64C3-64C3-MaxPool2-Drop0.1-128C3-128C3-AvgPool2-256C3-256C3-AvgPool8-Drop0.5-FC256-FC, but its text
counts seven layers, one of them dense. Like the published code, this network has one dense layer with 256 inputs. That
code also has dropout of 0.1 after the second pooling. The footnote does not, and neither does this network.
"""

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, dropout, max_pool2d, relu

from snowball.errors import SettingError

KERNEL, PADDING = 3, 1
MAP_DROPOUT, FEATURE_DROPOUT = 0.1, 0.5


class CifarCNN(nn.Module):
    """Three pairs of 3x3 convolutions with pooling and dropout, then a dense layer on the average of each map."""

    def __init__(self, widths: tuple[int, int, int], input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        if min(height, width) < 4:
            raise SettingError(f"an image of {height}x{width} is too small for two 2x2 poolings")
        first, second, third = widths
        self.conv1 = nn.Conv2d(channels, first, KERNEL, padding=PADDING, bias=False)
        self.conv2 = nn.Conv2d(first, first, KERNEL, padding=PADDING, bias=False)
        self.conv3 = nn.Conv2d(first, second, KERNEL, padding=PADDING, bias=False)
        self.conv4 = nn.Conv2d(second, second, KERNEL, padding=PADDING, bias=False)
        self.conv5 = nn.Conv2d(second, third, KERNEL, padding=PADDING, bias=False)
        self.conv6 = nn.Conv2d(third, third, KERNEL, padding=PADDING, bias=False)
        self.fc = nn.Linear(third, classes, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of normalised images (n, channels, height, width)."""
        maps = max_pool2d(relu(self.conv2(relu(self.conv1(inputs)))), 2)
        maps = dropout(maps, MAP_DROPOUT, self.training)
        maps = avg_pool2d(relu(self.conv4(relu(self.conv3(maps)))), 2)
        maps = relu(self.conv6(relu(self.conv5(maps))))
        features = maps.mean((2, 3))  # AvgPool8: 32x32 images leave 8x8 maps
        scores: Tensor = self.fc(dropout(features, FEATURE_DROPOUT, self.training))
        return scores
