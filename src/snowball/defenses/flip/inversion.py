"""Trigger inversion: finds the smallest patch that makes a model take images for another class.

Wang et al., "Neural Cleanse: Identifying and Mitigating Backdoor Attacks in Neural Networks", IEEE S&P 2019. A trigger
is one tensor (1 + channels, height, width) of numbers in [0, 1]: first a mask, which says how much of each pixel is
covered, then the pattern that covers it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from snowball.errors import SettingError

BETAS = (0.5, 0.9)
"""The decay rates of Adam, for triggers and for the models hardened against them."""

DEARER, CHEAPER = 1.5, 1.5**-1.5
"""Factors on the cost of a mask after enough successes, and after enough failures."""

JITTER = 0.01
"""The most that each number of the best trigger so far is moved before the search continues from it."""

EDGE = 1e-6
"""Distance kept from 0 and 1, where the inverse of tanh is infinite."""

MAX_RATE = 1e6
"""The highest learning rate of Adam."""


@dataclass(frozen=True)
class InversionSettings:
    """Settings of the search for triggers.

    Attributes:
        success: share of the images that a trigger must turn into its target class.
        universal_steps: steps of the search for a trigger for images of all classes.
        pair_steps: steps of the search for a trigger for images of one class.
        repeat_steps: steps of the search for the same trigger on a second batch, if the first gave one.
        lr: learning rate of Adam.
        cost: what a pixel of mask adds to the loss at first; ten times as much with `repeat_steps`.
        patience: successes, or failures, in a row after which the cost changes.
        samples: images per class in the search for a universal trigger; classes with no more than that are left out.
        max_mask: share of the image that the mask of a pair may cover; triggers that cover more are not used.
    """

    success: float = 0.9
    universal_steps: int = 400
    pair_steps: int = 200
    repeat_steps: int = 50
    lr: float = 0.1
    cost: float = 1e-3
    patience: int = 10
    samples: int = 1
    max_mask: float = 0.125

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for name in ("universal_steps", "pair_steps", "repeat_steps", "lr", "cost", "patience", "samples"):
            if not 0 < getattr(self, name) < inf:
                raise SettingError(f"inversion.{name} must be a positive number, got {getattr(self, name)}")
        check_rate("inversion.lr", self.lr)
        for name in ("success", "max_mask"):
            if not 0 < getattr(self, name) <= 1:
                raise SettingError(f"inversion.{name} must be a share in (0, 1], got {getattr(self, name)}")


def check_rate(name: str, rate: float) -> None:
    """Refuse a learning rate that float32 steps cannot have."""
    if rate > MAX_RATE:
        raise SettingError(f"{name} must be a learning rate up to {MAX_RATE:g}, got {rate:g}")


class Effort(NamedTuple):
    """The number of steps of a search, and the first cost of a pixel of mask."""

    steps: int
    cost: float


@dataclass(frozen=True, eq=False)
class Goal:
    """The goal of k triggers; each has at least one image."""

    images: Tensor  # (n, channels, height, width) in [0, 1]
    targets: Tensor  # (n,) the classes that the model should take them for
    owner: Tensor  # (n,) the index of the trigger that each gets, from 0 to k - 1


def invert_triggers(
    model: nn.Module, goal: Goal, start: Tensor, effort: Effort, settings: InversionSettings, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Search from `start` (k, 1 + channels, height, width); return the smallest triggers that succeed, and (k,) sizes.

    A trigger that never succeeded is zero, and so is its size.
    """
    belongs = one_hot(goal.owner, len(start)).T.float()  # (k, n)
    counts = belongs.sum(1)
    costs = Costs(start.new_full((len(start),), effort.cost), settings.patience)
    best, least = torch.zeros_like(start), [inf] * len(start)
    free = unbounded(start).requires_grad_()
    adam = torch.optim.Adam([free], settings.lr, BETAS, fused=True)
    with freeze_parameters(model):
        for _ in range(effort.steps):
            triggers = bounded(free)
            sizes = mask_sizes(triggers)
            scores = model(stamp_triggers(goal.images, triggers[goal.owner]))
            losses = cross_entropy(scores, goal.targets, reduction="none") / counts[goal.owner]
            (free.grad,) = torch.autograd.grad(losses.sum() + costs.values @ sizes, free)
            adam.step()
            hits = belongs @ (scores.argmax(1) == goal.targets).float()
            successes = (hits / counts >= settings.success).tolist()
            costs.update(successes)
            for trigger, size in enumerate(sizes.tolist()):
                if successes[trigger] and size < least[trigger]:
                    best[trigger], least[trigger] = triggers[trigger].detach(), size
                    free.data[trigger] = unbounded(jitter_triggers(best[trigger], rng))
    return best, mask_sizes(best)


class Costs:
    """The cost of a pixel of each mask: higher after successes in a row, lower after failures in a row."""

    def __init__(self, values: Tensor, patience: int) -> None:
        self.values = values  # (k,)
        self.patience = patience
        self.streaks = [0] * len(values)  # negative for failures

    def update(self, successes: list[bool]) -> None:
        """Update the costs after one more step."""
        for trigger, success in enumerate(successes):
            streak = max(self.streaks[trigger], 0) + 1 if success else min(self.streaks[trigger], 0) - 1
            if abs(streak) == self.patience:
                self.values[trigger] *= DEARER if success else CHEAPER
                streak = 0
            self.streaks[trigger] = streak


def stamp_triggers(images: Tensor, triggers: Tensor) -> Tensor:
    """Stamp one trigger on each of (n, channels, height, width) images, or a single trigger on all of them."""
    masks, patterns = torch.split(triggers, [1, triggers.shape[1] - 1], 1)
    return torch.lerp(images, patterns, masks)


def mask_sizes(triggers: Tensor) -> Tensor:
    """Return the (k,) numbers of pixels that the triggers cover; a pixel that is half covered counts one half."""
    return triggers[:, 0].sum((1, 2))


def draw_triggers(count: int, shape: torch.Size, rng: torch.Generator) -> Tensor:
    """Draw (count, 1 + channels, height, width) triggers uniformly, for images of shape (channels, height, width)."""
    channels, height, width = shape
    return torch.rand(count, 1 + channels, height, width, generator=rng)


def jitter_triggers(trigger: Tensor, rng: torch.Generator) -> Tensor:
    """Return a trigger with every number moved a little."""
    noise = torch.rand(trigger.shape, generator=rng).to(trigger.device)
    return (trigger + JITTER * (2 * noise - 1)).clamp_(0, 1)


def bounded(free: Tensor) -> Tensor:
    """Map any numbers into [0, 1]."""
    return free.tanh() / 2 + 0.5


def unbounded(values: Tensor) -> Tensor:
    """Invert `bounded`; the result is finite even for 0 and 1."""
    return torch.atanh(2 * values.clamp(EDGE, 1 - EDGE) - 1)


@contextmanager
def freeze_parameters(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode without gradients of its parameters, and restore it afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval()
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter in learning:
            parameter.requires_grad_()
