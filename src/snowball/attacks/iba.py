"""IBA: a trigger that a small network generates for every sample.

Nguyen, Nguyen, Tran, Doan, Wong: IBA: Towards Irreversible Backdoor Attacks in Federated Learning, NeurIPS 2023.

Before they train, the attackers of a round train a generator against the global model, which stays as it is: it adds a
faint pattern to a sample so that the model predicts the target. They stop once that works often enough. Then they train
as those of `cba` do, on samples with these patterns. The generator goes on from round to round.

Deviations: the generator is a convolutional autoencoder with a few thousand weights, for images of any size. The
opacity is the same in all rounds; the original lowers it step by step. The original combines this with projected
gradient descent and with poisoning of only those weights that honest clients rarely change; these are `pgd` and
`neurotoxin` here, and are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from snowball.attacks.base import AttackSetup, Knowledge, Memory
from snowball.attacks.cba import CBA
from snowball.attacks.learned_patch import measure_target_loss
from snowball.attacks.memory import AdaptationView
from snowball.attacks.poisoning import check_count, check_positive, check_share
from snowball.data import ImageDataset
from snowball.data.triggers import Trigger, require_images
from snowball.errors import RunError, SettingError
from snowball.models import draw_from
from snowball.rng import stream

WIDTHS = (8, 16)
"""Channels of the generator's two hidden sizes: at half and at a quarter of the image's sides."""

STAMP_BATCH = 200
"""Samples that the generator takes at a time."""


class Generator(nn.Module):
    """An autoencoder from an image to a pattern of the same shape, from -1 to 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half, quarter = WIDTHS
        self.down = nn.Conv2d(channels, half, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(half, quarter, 3, stride=2, padding=1)
        self.rise = nn.Conv2d(quarter, half, 3, padding=1)
        self.up = nn.Conv2d(half, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the patterns of scaled images (n, channels, height, width)."""
        half = self.down(images).relu()
        quarter = self.deep(half).relu()
        risen = self.rise(interpolate(quarter, half.shape[-2:])).relu()
        pattern: Tensor = self.up(interpolate(risen, images.shape[-2:])).tanh()
        return pattern


@dataclass(frozen=True, eq=False)
class GeneratedTrigger:
    """A faint pattern for every sample.

    Attributes:
        opacity: the largest change of a pixel, where 1 is from black to white.
    """

    dataset: ImageDataset
    generator: Generator
    opacity: float

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole pattern: it covers every pixel."""
        return (self,)

    @torch.no_grad()
    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw images (..., channels, height, width) with their patterns."""
        images = inputs.reshape(-1, *inputs.shape[-3:])
        stamped = [self._stamp_batch(batch) for batch in torch.split(images, STAMP_BATCH)]
        return torch.cat(stamped).view(inputs.shape)

    def _stamp_batch(self, inputs: Tensor) -> Tensor:
        shown = self.paint(self.dataset.scale(inputs))
        raw = self.dataset.black + shown * (self.dataset.white - self.dataset.black)
        return (raw if inputs.is_floating_point() else raw.round()).to(inputs.dtype)

    def paint(self, scaled: Tensor) -> Tensor:
        """Return scaled images with their patterns, within black and white."""
        return clip_shades(scaled + self.opacity * self.generator(scaled))


@dataclass(frozen=True)
class IBA(CBA):
    """All malicious clients plant patterns that a network generates, which they train together.

    Attributes:
        trigger: stamped by nobody; it only says that the data set must have images.
        opacity: the largest change of a pixel, where 1 is from black to white (epsilon).
        epochs: passes over the attackers' samples per round that train the generator, at most.
        enough: share of the attackers' samples at which the generator's training stops.
        rate: learning rate of the generator.
        samples_per_step: samples of all attackers together behind a step of the generator.
    """

    knowledge: ClassVar[Knowledge] = "colluders"
    opacity: float = 0.3
    epochs: int = 3
    enough: float = 0.7
    rate: float = 0.01
    samples_per_step: int = 64

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name in ("epochs", "samples_per_step"):
            check_count(name, getattr(self, name))
        for name in ("opacity", "rate"):
            check_positive(name, getattr(self, name))
        for name in ("opacity", "enough"):
            check_share(name, getattr(self, name))

    def make_trigger(self, setup: AttackSetup) -> Trigger:
        """Return the generator with the weights in the memory, or with its first ones."""
        images = require_images(setup.dataset)
        generator = build_generator(images.input_shape[0])
        if setup.memory is not None:
            load_weights(generator, setup.memory.get("weights"))
        return GeneratedTrigger(images, generator.requires_grad_(False), self.opacity)

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        """Return the generator's weights after this round's training."""
        trigger, model = find_generated(view.setup), view.model.requires_grad_(False)
        images = view.setup.dataset.scale(view.pool_samples().inputs.to(view.device))
        generator = trigger.generator.requires_grad_().to(view.device)
        optimizer = torch.optim.Adam(generator.parameters(), self.rate)
        for chosen in self._draw_batches(trigger, model, images, rng):
            optimizer.zero_grad()
            torch.autograd.backward(measure_target_loss(model, trigger.paint(images[chosen]), self.target))
            optimizer.step()
        return {"weights": parameters_to_vector(generator.parameters()).detach().cpu()}

    def _draw_batches(
        self, trigger: GeneratedTrigger, model: nn.Module, images: Tensor, rng: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield the indices of each step's samples until the trigger works often enough or the epochs are over."""
        for _ in range(self.epochs if len(images) else 0):
            if measure_success(trigger, model, images, self.target) >= self.enough:
                return
            order: Tensor = torch.randperm(len(images), generator=rng)
            yield from torch.split(order, self.samples_per_step)


@torch.no_grad()
def measure_success(trigger: GeneratedTrigger, model: nn.Module, images: Tensor, target: int) -> float:
    """Return the share of scaled images that the model predicts as the target once they are stamped."""
    hits = [(model(trigger.paint(batch)).argmax(1) == target).sum() for batch in torch.split(images, STAMP_BATCH)]
    return int(torch.stack(hits).sum()) / len(images)


def clip_shades(painted: Tensor) -> Tensor:
    """Clip shades to 0 and 1, with a gradient at those outside, too, unless a step along it leads farther out.

    Otherwise a generator whose patterns are all too dark or too bright would never learn again.
    """
    if painted.requires_grad:
        dark, bright = painted.detach() < 0, painted.detach() > 1
        painted.register_hook(lambda slope: slope.masked_fill(dark & (slope > 0) | bright & (slope < 0), 0.0))  # type: ignore[no-untyped-call]
    return painted + (painted.clamp(0, 1) - painted).detach()


def build_generator(channels: int) -> Generator:
    """Build the generator that every run starts from."""
    with draw_from(stream(0, "trigger", "iba")):
        return Generator(channels)


def load_weights(generator: Generator, weights: object) -> None:
    """Load the weights in a memory; refuse what are not those of the generator."""
    width = sum(parameter.numel() for parameter in generator.parameters())
    if not isinstance(weights, Tensor) or weights.dtype != torch.float32 or weights.shape != (width,):
        raise RunError(f"the attack's memory holds no {width} float32 weights of its generator")
    if not weights.isfinite().all():
        raise RunError("the attack's memory holds weights that are not finite")
    vector_to_parameters(weights.clone(), generator.parameters())


def find_generated(setup: AttackSetup) -> GeneratedTrigger:
    """Return the trigger of a setup whose trigger has been recalled."""
    if not isinstance(setup.trigger, GeneratedTrigger):
        raise SettingError("the attack generates its trigger, but its setup holds another one")
    return setup.trigger
