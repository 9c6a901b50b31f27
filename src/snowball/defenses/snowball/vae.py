"""The variational auto-encoder that learns what differences between good updates look like.

Sizes, activations, loss and optimiser are as published. The idea of a VAE: Kingma and Welling, "Auto-Encoding
Variational Bayes", ICLR 2014.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch import Tensor, nn
from torch.nn import functional

from snowball.defenses.snowball.vae_steps import Affine, Layers, Learning
from snowball.errors import SettingError
from snowball.threads import make_executor, use_threads

SCORE_ELEMENTS = 1 << 23
"""Elements of reconstructions in memory at a time while scoring: 32 MiB."""

MAX_THREADS, MAX_WIDTH = 1024, 10**6
"""The most threads, and the widest hidden layer or latent code, that settings may ask for."""


@dataclass(frozen=True)
class VAESettings:
    """Sizes and training of the VAE.

    Attributes:
        first_epochs: epochs before the first candidates are scored (the paper's E^VI).
        tune_epochs: epochs before every scoring, the first one too (E^VT).
        hidden: width of the hidden layers (S^H).
        latent: width of the latent code (S^L).
        samples: latent draws that a reconstruction error is averaged over.
        lr: learning rate of Adam.
        cpu_threads: threads that it learns on; more than two are as two. No number depends on it.
    """

    first_epochs: int = 270
    tune_epochs: int = 30
    hidden: int = 256
    latent: int = 64
    samples: int = 10
    lr: float = 1e-3
    cpu_threads: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes and numbers of threads that are out of range."""
        for name in ("first_epochs", "tune_epochs", "hidden", "latent", "samples", "lr"):
            if not 0 < getattr(self, name) < inf:
                raise SettingError(f"vae.{name} must be a positive number, got {getattr(self, name)}")
        for name in ("hidden", "latent"):
            if getattr(self, name) > MAX_WIDTH:
                raise SettingError(f"vae.{name} must be a width up to {MAX_WIDTH}, got {getattr(self, name)}")
        if not (isinstance(self.cpu_threads, int) and 1 <= self.cpu_threads <= MAX_THREADS):
            raise SettingError(f"vae.cpu_threads must be a number from 1 to {MAX_THREADS}, got {self.cpu_threads}")


class VAE(nn.Module):
    """An encoder and a decoder of three layers each.

    Attributes:
        batch: differences per optimiser step.
        bounded: whether inputs and outputs go through the logistic function, as published; otherwise they are linear.
        device: where it computes; random numbers are drawn on the CPU, so that devices differ only in arithmetic.
    """

    def __init__(
        self,
        width: int,
        settings: VAESettings,
        rng: torch.Generator,
        batch: int,
        bounded: bool,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        self.settings, self.rng, self.batch, self.bounded, self.device = settings, rng, batch, bounded, device
        hidden, latent = settings.hidden, settings.latent
        affine = partial(Affine, rng=rng, device=device)
        self.enter, self.encode = affine(width, hidden), affine(hidden, hidden)
        self.code, self.decode = affine(hidden, 2 * latent), affine(latent, hidden)
        self.widen, self.leave = affine(hidden, hidden), affine(hidden, width, by_input=True)

    def _prepare(self, differences: Tensor) -> Tensor:
        return differences.sigmoid() if self.bounded else differences

    def _noise(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.rng).to(self.device)

    @torch.no_grad()
    def learn(self, differences: Tensor, epochs: int) -> None:
        """Train on the differences, with a new optimiser."""
        layers = Layers(self.enter, self.encode, self.code, self.decode, self.widen, self.leave)
        inputs = self._prepare(differences)
        threads = self.settings.cpu_threads if self.device == "cpu" else 1
        with use_threads(1), make_executor(threads) as executor:
            learning = Learning(layers, self.settings.lr, self.bounded, executor)
            for rows in self._draw_batches(len(inputs), epochs):
                learning.take_step(inputs[rows], self._noise((len(rows), self.settings.latent)))
            learning.finish()

    def _draw_batches(self, count: int, epochs: int) -> Iterator[Tensor]:
        for _ in range(epochs):
            yield from torch.split(torch.randperm(count, generator=self.rng), self.batch)

    @torch.no_grad()
    def codes(self, differences: Tensor) -> Tensor:
        """Return the (m, latent) mean codes of the differences."""
        return self._encode(self._prepare(differences))[0]

    @torch.no_grad()
    def errors(self, differences: Tensor) -> Tensor:
        """Return the (m,) summed squared reconstruction errors of the differences, averaged over latent draws."""
        at_once = max(1, SCORE_ELEMENTS // (differences.shape[1] * self.settings.samples))
        return torch.cat([self._errors(part) for part in torch.split(differences, at_once)])

    def _errors(self, differences: Tensor) -> Tensor:
        inputs = self._prepare(differences)  # (m, d)
        mean, log_variance = self._encode(inputs)
        deviation = (0.5 * functional.softplus(log_variance)).exp_()
        codes = mean + deviation * self._noise((self.settings.samples, *mean.shape))
        outputs = self._prepare(self.leave(self.widen(self.decode(codes).relu_()).relu_()))  # (samples, m, d)
        return (outputs - inputs).square_().sum(2).mean(0)

    def _encode(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the mean of the code, and its logarithmic variance before the softplus."""
        code: Tensor = self.code(self.encode(self.enter(inputs).relu_()).relu_())
        return code.chunk(2, 1)
