"""Local training of one client: SGD with momentum, on a model whose parameters are views of one row."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.sgd import sgd

from snowball.attacks import Loss
from snowball.buffers import Buffers, copy_buffers, load_buffers
from snowball.errors import SettingError
from snowball.layout import Layout, select_parameters
from snowball.models import draw_from
from snowball.models.features import compute_features
from snowball.models.stacked import make_stacked_gradients
from snowball.rng import stream
from snowball.sim.experiment import TrainingSettings

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class StepHooks(NamedTuple):
    """Callbacks of every SGD step.

    `before` changes the gradient in place, `after` changes the weights, and `loss` replaces the cross-entropy.
    """

    before: Callable[[Tensor, Tensor], None] | None = None
    after: Callable[[Tensor], None] | None = None
    loss: Loss | None = None


NO_HOOKS = StepHooks()


class Trainer:
    """Trains one client after the other with the same model.

    Parameters and gradients are views of two rows, so that an SGD step is one operation for all layers. Convolutions
    keep their channels last, which is fastest. Steps are those of torch.optim.SGD.

    Batch normalisation needs two samples: if a model has it, a last batch of one sample joins the batch before it, and
    a client with one sample trains nothing.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, device: str = "cpu") -> None:
        self.model = model.to(device)  # its weights are lost: `load` sets others
        self.settings = settings
        self.device = device
        self.min_batch = 2 if any(isinstance(module, BATCH_NORMS) for module in model.modules()) else 1
        if settings.batch < self.min_batch:
            raise SettingError(f"training.batch = {settings.batch} is too small for batch normalisation, which needs 2")
        self.layout = Layout.from_tensors(select_parameters(model))
        self.weights = torch.zeros(self.layout.width, device=device)
        self.gradient = torch.zeros(self.layout.width, device=device)
        for name, parameter in model.named_parameters():
            columns = self.layout.columns[name]
            parameter.data = view_channels_last(self.weights[columns], parameter.shape)
            parameter.grad = view_channels_last(self.gradient[columns], parameter.shape)
        self.stacked_gradients = make_stacked_gradients(model)

    def load(self, row: Tensor, buffers: Buffers | None = None) -> None:
        """Load weights and buffers into the model."""
        with torch.no_grad():
            for parameter, tensor in zip(self.model.parameters(), self.layout.split(row).values(), strict=True):
                parameter.copy_(tensor)
        load_buffers(self.model, buffers or {})

    def train(
        self,
        inputs: Tensor,
        labels: Tensor,
        rate: float,
        rng: torch.Generator,
        hooks: StepHooks = NO_HOOKS,
        epochs: int | None = None,
    ) -> None:
        """Train for some epochs, by default the configured number, each in a new order of the samples."""
        velocity = torch.zeros_like(self.weights)
        sizes = compute_batch_sizes(len(labels), self.settings.batch, self.min_batch)
        self.model.train()
        with draw_from(stream(rng.initial_seed(), "dropout"), self.device):
            for _ in range(epochs or self.settings.epochs):
                order = torch.randperm(len(labels), generator=rng)[: sum(sizes)].to(self.device)
                shuffled = torch.split(inputs[order], sizes), torch.split(labels[order], sizes)
                for images, answers in zip(*shuffled, strict=True):
                    self.compute_gradient(images, answers, hooks)
                    if hooks.before:
                        hooks.before(self.weights, self.gradient)
                    take_sgd_step(self.weights, self.gradient, velocity, self.settings, rate)
                    if hooks.after:
                        hooks.after(self.weights)

    def compute_gradient(self, inputs: Tensor, labels: Tensor, hooks: StepHooks = NO_HOOKS) -> None:
        """Compute the gradient of the loss on a batch."""
        if hooks.loss:
            self.gradient.zero_()
            torch.autograd.backward(hooks.loss(*compute_features(self.model, self.layout, inputs), labels))
        elif self.stacked_gradients:
            weights, gradients = (
                [part.unsqueeze(0) for part in self.layout.split(row).values()] for row in (self.weights, self.gradient)
            )
            self.stacked_gradients(weights, inputs.unsqueeze(0), labels.unsqueeze(0), gradients)
        else:
            self.gradient.zero_()
            torch.autograd.backward(cross_entropy(self.model(inputs), labels))

    def read_row(self) -> Tensor:
        """Return the model's weights as a row."""
        return self.layout.flatten(select_parameters(self.model)).cpu()

    def copy_buffers(self) -> Buffers:
        """Return a copy of the model's buffers."""
        return copy_buffers(self.model)


@torch.no_grad()
def take_sgd_step(weights: Tensor, gradient: Tensor, velocity: Tensor, settings: TrainingSettings, rate: float) -> None:
    """Take an SGD step in one pass over the rows (d,) or (n, d), for any number of models at once.

    Every row is a tensor of its own to torch, which rounds differently in the last columns of a tensor.
    """
    sgd(
        list(weights.view(-1, weights.shape[-1])),
        list(gradient.view(-1, weights.shape[-1])),
        list(velocity.view(-1, weights.shape[-1])),
        fused=True,
        lr=rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def compute_batch_sizes(count: int, batch: int, smallest: int) -> list[int]:
    """Return the batch sizes of an epoch; a last batch below `smallest` joins the one before it, or is left out."""
    sizes = [min(batch, count - start) for start in range(0, count, batch)]
    if sizes and sizes[-1] < smallest:
        rest = sizes.pop()
        sizes[-1:] = [size + rest for size in sizes[-1:]]
    return sizes


def view_channels_last(columns: Tensor, shape: torch.Size) -> Tensor:
    """View columns in a parameter's shape; filters of a convolution are stored with their channels innermost."""
    if len(shape) != 4:
        return columns.view(shape)
    filters, channels, height, width = shape
    return columns.view(filters, height, width, channels).permute(0, 3, 1, 2)
