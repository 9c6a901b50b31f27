"""The variational auto-encoder that learns what differences between good updates look like.

Sizes, activations, loss and optimiser as published; Kingma and Welling, "Auto-Encoding Variational Bayes", ICLR 2014.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snowball.errors import SettingError

SCORE_ELEMENTS = 1 << 23
"""Elements of reconstructions held at a time while scoring: 32 MiB."""


@dataclass(frozen=True)
class VaeSettings:
    """How the VAE is built and trained.

    Attributes:
        first_epochs: epochs before the first candidates are scored (the paper's E^VI).
        tune_epochs: epochs each time the elected have grown (E^VT).
        hidden: width of the hidden layers (S^H).
        latent: width of the latent code (S^L).
        samples: latent draws a reconstruction error is averaged over.
        lr: learning rate of Adam.
    """

    first_epochs: int = 270
    tune_epochs: int = 30
    hidden: int = 256
    latent: int = 64
    samples: int = 10
    lr: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse sizes that no network can have."""
        for name in ("first_epochs", "tune_epochs", "hidden", "latent", "samples", "lr"):
            if not 0 < getattr(self, name) < inf:
                raise SettingError(f"vae.{name} must be a positive number, got {getattr(self, name)}")


class Vae(nn.Module):
    """An encoder and a decoder of three layers each.

    Attributes:
        batch: differences an optimiser step.
        bounded: inputs and outputs go through the logistic function, as published; else they are linear.
    """

    def __init__(self, width: int, settings: VaeSettings, rng: torch.Generator, batch: int, bounded: bool) -> None:
        super().__init__()
        self.settings, self.rng, self.batch, self.bounded = settings, rng, batch, bounded
        hidden, latent = settings.hidden, settings.latent
        self.enter, self.encode = Affine(width, hidden, rng), Affine(hidden, hidden, rng)
        self.code, self.decode = Affine(hidden, 2 * latent, rng), Affine(latent, hidden, rng)
        self.widen, self.leave = Affine(hidden, hidden, rng), Affine(hidden, width, rng)

    def _encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = functional.relu(self.encode(functional.relu(self.enter(inputs))))
        mean, log_variance = self.code(hidden).chunk(2, -1)
        return mean, functional.softplus(log_variance)

    def _decode(self, code: Tensor) -> Tensor:
        output: Tensor = self.leave(functional.relu(self.widen(functional.relu(self.decode(code)))))
        return output.sigmoid() if self.bounded else output

    def _prepare(self, differences: Tensor) -> Tensor:
        return differences.sigmoid() if self.bounded else differences

    def _noise(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.rng)

    def learn(self, differences: Tensor, epochs: int) -> None:
        """Train on the differences, with a new optimiser."""
        inputs = self._prepare(differences)
        optimiser = torch.optim.Adam(self.parameters(), self.settings.lr, fused=True)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(inputs), generator=self.rng), self.batch):
                torch.autograd.backward(self._loss(inputs[rows]))
                optimiser.step()

    def _loss(self, inputs: Tensor) -> Tensor:
        """Summed squared error and summed divergence of the code from a standard normal."""
        mean, log_variance = self._encode(inputs)
        code = mean + (0.5 * log_variance).exp() * self._noise(mean.shape)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return functional.mse_loss(self._decode(code), inputs, reduction="sum") + divergence

    @torch.no_grad()
    def errors(self, differences: Tensor) -> Tensor:
        """(m,) summed squared reconstruction error of each difference, averaged over latent draws."""
        at_once = max(1, SCORE_ELEMENTS // (differences.shape[1] * self.settings.samples))
        return torch.cat([self._errors(part) for part in torch.split(differences, at_once)])

    def _errors(self, differences: Tensor) -> Tensor:
        inputs = self._prepare(differences)  # (m, d)
        mean, log_variance = self._encode(inputs)
        codes = mean + (0.5 * log_variance).exp() * self._noise((self.settings.samples, *mean.shape))
        outputs = self._decode(codes)  # (samples, m, d)
        return outputs.sub_(inputs).square_().sum(2).mean(0)


class Affine(nn.Module):
    """A linear layer with Kaiming weights from the given stream and biases of zero.

    A backward pass overwrites its gradients in place: at batches of eight, making room for new ones takes longer than
    the arithmetic.
    """

    def __init__(self, inputs: int, outputs: int, rng: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(outputs, inputs)), nn.Parameter(torch.zeros(outputs))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu", generator=rng)
        self.weight.grad, self.bias.grad = torch.empty_like(self.weight), torch.empty_like(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's outputs."""
        output: Tensor = _InPlaceLinear.apply(inputs, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output


class _InPlaceLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight, bias)
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, None, None]:
        inputs, weight, bias = ctx.saved_tensors
        torch.mm(outer.T, inputs, out=weight.grad)
        torch.sum(outer, 0, out=bias.grad)
        return outer @ weight if ctx.needs_input_grad[0] else None, None, None
