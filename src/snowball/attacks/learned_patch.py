"""A patch of pixels whose shades an attack learns, and the steps that learn them.

Shades are numbers from 0 for black to 1 for white, so a patch is always a possible picture.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snowball.attacks.base import AttackSetup
from snowball.data.triggers import PixelPatch, Trigger, require_images
from snowball.errors import RunError, SettingError

FIRST_SHADE = 0.5
"""The shade of all pixels of a patch that has not been learned yet."""

Scores = Callable[[Tensor], Tensor]
"""A model: takes scaled images and returns class scores."""


@dataclass(frozen=True, eq=False)
class LearnedPatch:
    """Pixels with a shade each.

    Attributes:
        pixels: (row, column) of each pixel.
        shades: (channels, pixels) from 0 to 1.
        black: the raw value of shade 0.
        white: the raw value of shade 1.
    """

    pixels: tuple[tuple[int, int], ...]
    shades: Tensor
    black: float = 0
    white: float = 255

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole patch: its pixels were learned together."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw images (..., channels, height, width) with the patch."""
        raw = self.black + self.shades * (self.white - self.black)
        raw = raw if inputs.is_floating_point() else raw.round()
        return paint_pixels(inputs, self.pixels, raw.to(inputs.device, inputs.dtype))

    def paint(self, scaled: Tensor, shades: Tensor) -> Tensor:
        """Return a copy of scaled images with other shades at the patch's pixels, differentiable in the shades."""
        return paint_pixels(scaled, self.pixels, shades)


def paint_pixels(images: Tensor, pixels: tuple[tuple[int, int], ...], values: Tensor) -> Tensor:
    """Return a copy of images (..., channels, height, width) with (channels, pixels) values at some pixels."""
    rows, columns = [row for row, _ in pixels], [column for _, column in pixels]
    painted = images.clone()
    painted[..., rows, columns] = values
    return painted


def read_patch(setup: AttackSetup) -> LearnedPatch:
    """Return the patch with the shades in the memory, or with the first shade, at the pixels that the attack names."""
    images, named = require_images(setup.dataset), setup.trigger
    if not isinstance(named, PixelPatch):
        raise SettingError("attack.trigger must be a square, whose shades can be learned: try white-square")
    shape = (images.input_shape[0], len(named.pixels))
    shades = torch.full(shape, FIRST_SHADE) if setup.memory is None else setup.memory.get("shades")
    if not isinstance(shades, Tensor) or shades.dtype != torch.float32 or shades.shape != shape:
        raise RunError(f"the attack's memory holds no float32 shades of {shape[0]} x {shape[1]} pixels")
    if not ((shades >= 0) & (shades <= 1)).all():
        raise RunError("the attack's memory holds shades outside 0 to 1")
    return LearnedPatch(named.pixels, shades, images.black, images.white)


def find_patch(setup: AttackSetup) -> LearnedPatch:
    """Return the patch of a setup whose trigger has been recalled."""
    if not isinstance(setup.trigger, LearnedPatch):
        raise SettingError("the attack learns a patch, but its setup holds another trigger")
    return setup.trigger


def take_sign_step(shades: Tensor, gradient: Tensor, step: float) -> Tensor:
    """Return shades that are one step against the signs of a gradient, kept within 0 to 1."""
    return (shades - step * gradient.sign()).clamp(0, 1)


def compute_patch_gradient(loss: Callable[[Tensor], Tensor], shades: Tensor) -> Tensor:
    """Return the gradient of a loss of the shades."""
    variable = shades.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(variable), variable)
    return gradient


def measure_target_loss(model: Scores, images: Tensor, target: int) -> Tensor:
    """Return the mean cross entropy of scaled images with the target as label."""
    return cross_entropy(model(images), torch.full((len(images),), target, device=images.device))
