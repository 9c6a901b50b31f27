"""Local training of one client: SGD with momentum, on a model whose parameters are views of one row."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.sgd import sgd

from snowball.buffers import Buffers, buffers_of, load_buffers
from snowball.errors import SettingError
from snowball.models import draw_from
from snowball.rng import stream
from snowball.sim.experiment import TrainingSettings
from snowball.updates import Layout

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Hooks(NamedTuple):
    """What happens around every step of SGD: changes of the gradient before it, of the weights after it."""

    before: Callable[[Tensor, Tensor], None] | None = None
    after: Callable[[Tensor], None] | None = None


NO_HOOKS = Hooks()


class Trainer:
    """A model to train one client after the other with.

    Parameters and gradients are views of two rows, so that a step of SGD is one operation whatever the number of
    layers; convolutions keep their channels last, which is how they run fastest. Steps are those of torch.optim.SGD.

    Batch normalisation has no statistics of one sample: where a model has it, a last batch of one joins the one before
    it, and a client of one sample trains nothing.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, device: str = "cpu") -> None:
        self.model = model.to(device)  # its weights are lost: `load` brings others
        self.settings = settings
        self.device = device
        self.least = 2 if any(isinstance(module, BATCH_NORMS) for module in model.modules()) else 1
        if settings.batch < self.least:
            raise SettingError(f"training.batch = {settings.batch} is too few for batch normalisation, which needs 2")
        self.layout = Layout.of(dict(model.named_parameters()))
        self.weights = torch.zeros(self.layout.width, device=device)
        self.gradient = torch.zeros(self.layout.width, device=device)
        for name, parameter in model.named_parameters():
            columns = self.layout.columns[name]
            parameter.data = channels_last(self.weights[columns], parameter.shape)
            parameter.grad = channels_last(self.gradient[columns], parameter.shape)

    def load(self, row: Tensor, buffers: Buffers | None = None) -> None:
        """Give the model these weights, and the buffers that it has."""
        with torch.no_grad():
            for parameter, tensor in zip(self.model.parameters(), self.layout.split(row).values(), strict=True):
                parameter.copy_(tensor)
        load_buffers(self.model, buffers or {})

    def train(self, inputs: Tensor, labels: Tensor, rate: float, rng: torch.Generator, hooks: Hooks = NO_HOOKS) -> None:
        """Some epochs over the samples, each in a new order."""
        velocity = torch.zeros_like(self.weights)
        sizes = batch_sizes(len(labels), self.settings.batch, self.least)
        self.model.train()
        with draw_from(stream(rng.initial_seed(), "dropout"), self.device):
            for _ in range(self.settings.epochs):
                order = torch.randperm(len(labels), generator=rng)[: sum(sizes)].to(self.device)
                shuffled = torch.split(inputs[order], sizes), torch.split(labels[order], sizes)
                for images, answers in zip(*shuffled, strict=True):
                    self.gradient.zero_()
                    torch.autograd.backward(cross_entropy(self.model(images), answers))
                    if hooks.before:
                        hooks.before(self.weights, self.gradient)
                    step(self.weights, self.gradient, velocity, self.settings, rate)
                    if hooks.after:
                        hooks.after(self.weights)

    def row(self) -> Tensor:
        """The model's weights as a row."""
        return self.layout.flatten({name: value.detach() for name, value in self.model.named_parameters()}).cpu()

    def buffers(self) -> Buffers:
        """The model's buffers."""
        return buffers_of(self.model)


@torch.no_grad()
def step(weights: Tensor, gradient: Tensor, velocity: Tensor, settings: TrainingSettings, rate: float) -> None:
    """A step of SGD in one pass over the rows, of any number of models at once."""
    sgd(
        [weights],
        [gradient],
        [velocity],
        fused=True,
        lr=rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def batch_sizes(count: int, batch: int, least: int) -> list[int]:
    """The batches of an epoch over so many samples; fewer than `least` join the batch before them, or are left out."""
    sizes = [min(batch, count - start) for start in range(0, count, batch)]
    if sizes and sizes[-1] < least:
        rest = sizes.pop()
        sizes[-1:] = [size + rest for size in sizes[-1:]]
    return sizes


def channels_last(columns: Tensor, shape: torch.Size) -> Tensor:
    """A view of some columns in a parameter's shape; the filters of a convolution with their channels innermost."""
    if len(shape) != 4:
        return columns.view(shape)
    filters, channels, height, width = shape
    return columns.view(filters, height, width, channels).permute(0, 3, 1, 2)
