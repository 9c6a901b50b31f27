"""Residual networks for small images.

He, Zhang, Ren and Sun: Deep Residual Learning for Image Recognition, CVPR 2016. A block of two convolutions learns what
to add to its input.

`resnet8` has the widths of their networks for CIFAR-10, with one block per width. `resnet18` has the widths of their
ResNet-18, but a first convolution of 3x3 pixels with stride 1 and no pooling, as usual for images of 32x32 pixels.
Both project a shortcut whose shape changes by a 1x1 convolution. As in Reddi et al., Adaptive Federated Optimization,
ICLR 2021, group normalisation with two groups replaces batch normalisation, unless it is asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

KERNEL, PADDING = 3, 1
GROUPS = 2

Norm = Callable[[int], nn.Module]
"""Makes the normalisation of this many maps."""

NORMS: dict[str, Norm] = {"group": partial(nn.GroupNorm, GROUPS), "batch": nn.BatchNorm2d}


class ResidualBlock(nn.Module):
    """conv 3x3 - norm - ReLU - conv 3x3 - norm, added to the input, then ReLU."""

    def __init__(self, channels: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, KERNEL, stride, PADDING, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, KERNEL, padding=PADDING, bias=False)
        self.norm2 = norm(width)
        self.shortcut = nn.Sequential()
        if channels != width or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), norm(width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return maps (n, width, height / stride, width / stride)."""
        maps = self.norm2(self.conv2(relu(self.norm1(self.conv1(inputs)))))
        return relu(maps + self.shortcut(inputs))


class ResNet(nn.Module):
    """A convolution, residual blocks that halve the sides of the maps with each new width, and a dense layer."""

    def __init__(
        self, widths: Sequence[int], blocks: int, norm: str, input_shape: tuple[int, int, int], classes: int
    ) -> None:
        super().__init__()
        make_norm = NORMS[norm]
        self.conv = nn.Conv2d(input_shape[0], widths[0], KERNEL, padding=PADDING, bias=False)
        self.norm = make_norm(widths[0])
        self.blocks = nn.Sequential(*make_blocks(widths, blocks, make_norm))
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of normalised images (n, channels, height, width)."""
        maps = self.blocks(relu(self.norm(self.conv(inputs))))
        scores: Tensor = self.fc(maps.mean((2, 3)))
        return scores


def make_blocks(widths: Sequence[int], blocks: int, norm: Norm) -> Iterable[ResidualBlock]:
    """Make as many blocks of every width; the first of every width but the first has stride 2."""
    channels = widths[0]
    for rank, width in enumerate(widths):
        for number in range(blocks):
            yield ResidualBlock(channels, width, 2 if rank and not number else 1, norm)
            channels = width


def build_resnet(
    widths: Sequence[int], blocks: int, norm: str, input_shape: tuple[int, int, int], classes: int
) -> nn.Module:
    """Build a network with weights as He et al. 2015 draw them, normal; normalisations start as the identity."""
    with torch.random.fork_rng([]):  # layers also draw weights, which are replaced: restore the generator
        model = ResNet(widths, blocks, norm, input_shape, classes)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    nn.init.zeros_(model.fc.bias)
    return model
