"""Local training of one client: SGD with momentum, on a model whose parameters are views of one row."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.sim.experiment import TrainingSettings
from snowball.updates import Layout


class Trainer:
    """A model to train one client after the other with.

    Parameters and gradients are views of two rows, so that a step of SGD is four operations whatever the number of
    layers; convolutions keep their channels last, which is how they run fastest. Steps are those of torch.optim.SGD.
    """

    def __init__(self, model: nn.Module, settings: TrainingSettings, device: str = "cpu") -> None:
        self.model = model.to(device)  # its weights are lost: `load` brings others
        self.settings = settings
        self.device = device
        self.layout = Layout.of(dict(model.named_parameters()))
        self.weights = torch.zeros(self.layout.width, device=device)
        self.gradient = torch.zeros(self.layout.width, device=device)
        for name, parameter in model.named_parameters():
            columns = self.layout.columns[name]
            parameter.data = channels_last(self.weights[columns], parameter.shape)
            parameter.grad = channels_last(self.gradient[columns], parameter.shape)

    def load(self, row: Tensor) -> None:
        """Give the model these weights."""
        with torch.no_grad():
            for parameter, tensor in zip(self.model.parameters(), self.layout.split(row).values(), strict=True):
                parameter.copy_(tensor)

    def train(self, inputs: Tensor, labels: Tensor, rate: float, rng: torch.Generator) -> None:
        """Some epochs over the samples, each in a new order."""
        velocity = torch.zeros_like(self.weights)
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(labels), generator=rng).to(self.device)
            shuffled = torch.split(inputs[order], self.settings.batch), torch.split(labels[order], self.settings.batch)
            for images, answers in zip(*shuffled, strict=True):
                self.gradient.zero_()
                torch.autograd.backward(cross_entropy(self.model(images), answers))
                self._step(velocity, rate)

    def row(self) -> Tensor:
        """The model's weights as a row."""
        return self.layout.flatten({name: value.detach() for name, value in self.model.named_parameters()}).cpu()

    @torch.no_grad()
    def _step(self, velocity: Tensor, rate: float) -> None:
        self.gradient.add_(self.weights, alpha=self.settings.weight_decay)
        velocity.mul_(self.settings.momentum).add_(self.gradient)
        self.weights.add_(velocity, alpha=-rate)


def channels_last(columns: Tensor, shape: torch.Size) -> Tensor:
    """A view of some columns in a parameter's shape; the filters of a convolution with their channels innermost."""
    if len(shape) != 4:
        return columns.view(shape)
    filters, channels, height, width = shape
    return columns.view(filters, height, width, channels).permute(0, 3, 1, 2)
