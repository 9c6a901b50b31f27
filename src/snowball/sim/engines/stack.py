"""Local training of several clients at once: their models are the rows of one matrix, and torch.func runs them all."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from snowball.buffers import Buffers, saved
from snowball.models.dropout import DropoutCall, DropoutReplay, DropoutStreams, record_dropout_calls
from snowball.rng import derive
from snowball.sim.engines.batching import Tasks, turns
from snowball.sim.training.sgd import Trainer, batch_sizes, step

ROWS = 6
"""Rows that a client takes at most: its weights, gradient and velocity, and copies on the way."""


class Stack:
    """The models of some clients, which all start from one.

    Attributes:
        members: whose model each row is.
        weights: (n, d) their parameters, in the layout's order.
        velocity: (n, d) what momentum makes of their gradients.
        buffers: (n, ...) by name.
    """

    def __init__(self, count: int, trainer: Trainer, base: Tensor, buffers: Buffers) -> None:
        self.trainer = trainer
        self.members = list(range(count))
        self.weights = base.to(trainer.weights).repeat(count, 1)
        self.velocity = torch.zeros_like(self.weights)
        self.buffers = {
            name: buffers[name].to(trainer.device).expand(count, *buffers[name].shape).clone()
            for name in saved(trainer.model)
        }

    def bring(self, members: Sequence[int]) -> None:
        """Let these be the first rows."""
        if self.members[: len(members)] == list(members):
            return
        order = [*members, *(member for member in self.members if member not in set(members))]
        places = torch.tensor([self.members.index(member) for member in order], device=self.weights.device)
        self.members, self.weights, self.velocity = order, self.weights[places], self.velocity[places]
        self.buffers = {name: buffer[places] for name, buffer in self.buffers.items()}

    def step(self, inputs: Tensor, labels: Tensor, noises: Sequence[Tensor], rate: float) -> None:
        """Let the first rows take a step of SGD, each with a batch of its own: inputs are (rows, batch, ...)."""
        weights, velocity = self.weights[: len(labels)], self.velocity[: len(labels)]
        gradient = self.gradient(weights, inputs, labels, noises)
        step(weights, gradient, velocity, self.trainer.settings, rate)

    def gradient(self, weights: Tensor, inputs: Tensor, labels: Tensor, noises: Sequence[Tensor]) -> Tensor:
        """(n, d) each row's gradient of its own loss: nothing of a row is in the losses of the others."""
        layout, rows = self.trainer.layout, len(weights)
        parameters = {
            name: weights[:, columns].view(rows, *shape).requires_grad_()
            for (name, columns), shape in zip(layout.columns.items(), layout.shapes, strict=True)
        }
        buffers = {name: buffer[:rows] for name, buffer in self.buffers.items()}
        losses = vmap(self._loss)(parameters, buffers, inputs, labels, list(noises))  # (n,)
        gradients = torch.autograd.grad(losses.sum(), list(parameters.values()), materialize_grads=True)
        return torch.cat([gradient.flatten(1) for gradient in gradients], 1)

    def models(self) -> list[tuple[Tensor, Buffers]]:
        """The parameters (d,) and buffers of every member's model, by number."""
        places = [self.members.index(member) for member in range(len(self.members))]
        weights = self.weights.cpu()
        buffers = {name: buffer.cpu() for name, buffer in self.buffers.items()}
        return [(weights[place], {name: buffer[place].clone() for name, buffer in buffers.items()}) for place in places]

    def _loss(
        self, parameters: Buffers, buffers: Buffers, inputs: Tensor, labels: Tensor, noises: list[Tensor]
    ) -> Tensor:
        with DropoutReplay(noises):
            return cross_entropy(functional_call(self.trainer.model, parameters | buffers, inputs), labels)


class StackTrainer:
    """Trains any number of clients at once, with a trainer's model and settings."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.drops: dict[int, list[DropoutCall]] = {}

    def train(self, tasks: Tasks, base: Tensor, buffers: Buffers, rate: float) -> Stack:
        """What clients make of a global model; rows are moved least where who has most samples comes first."""
        settings, device = self.trainer.settings, self.trainer.device
        stack = Stack(len(tasks.counts), self.trainer, base, buffers)
        sizes = [batch_sizes(count, settings.batch, self.trainer.least) for count in tasks.counts]
        self.trainer.model.train()
        with torch.random.fork_rng([] if device == "cpu" else [device]):
            draws = DropoutStreams([derive(rng.initial_seed(), "dropout") for rng in tasks.rngs], device)
            for _ in range(settings.epochs):
                orders = tasks.shuffled()
                for turn in turns(sizes, settings.batch):
                    batch = turn.batch(orders)
                    noises = draws.draw_noises(self.drops_in(tasks.inputs[:1], turn.size), turn.members)
                    stack.bring(turn.members)
                    stack.step(tasks.inputs[batch], tasks.labels[batch], noises, rate)
        return stack

    def drops_in(self, sample: Tensor, size: int) -> list[DropoutCall]:
        """Where the model drops when it is given so many samples like one (1, ...)."""
        if size not in self.drops:
            self.drops[size] = record_dropout_calls(
                self.trainer.model, torch.zeros_like(sample).repeat_interleave(size, 0)
            )
        return self.drops[size]

    def rehearse(self, sample: Tensor, most: int) -> int:
        """Let two clients step at once; the bytes that one takes if it has so many samples like one (1, ...)."""
        trainer = self.trainer
        size = max(trainer.least, min(trainer.settings.batch, most))
        inputs = torch.zeros_like(sample).repeat_interleave(size, 0)
        labels = torch.zeros(2, size, dtype=torch.long, device=trainer.device)
        stack = Stack(2, trainer, torch.zeros_like(trainer.weights), trainer.buffers())
        trainer.model.train()
        with torch.random.fork_rng([] if trainer.device == "cpu" else [trainer.device]):
            noises = DropoutStreams([0, 0], trainer.device).draw_noises(self.drops_in(sample, size), [0, 1])
            stack.gradient(stack.weights, inputs.expand(2, *inputs.shape), labels, noises)
            return bytes_kept(trainer.model, inputs) + ROWS * trainer.weights.nbytes + most * sample.nbytes


def bytes_kept(model: nn.Module, inputs: Tensor) -> int:
    """What a model keeps of a batch for its derivative."""
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.nbytes)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model(inputs)
    return sum(kept)
