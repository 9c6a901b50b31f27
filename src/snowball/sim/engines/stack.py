"""Local training of several clients at once: their models are the rows of one matrix, and torch.func runs them all."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from snowball.buffers import Buffers, select_buffers
from snowball.layout import Layout
from snowball.models.dropout import DropoutCall, DropoutReplay, DropoutStreams, record_dropout_calls
from snowball.rng import derive
from snowball.sim.engines.batching import StackedSamples, group_batches
from snowball.sim.training.sgd import Trainer, compute_batch_sizes, take_sgd_step

ROWS_PER_CLIENT = 6
"""Upper bound of the rows that a client takes: its weights, gradient and velocity, and temporary copies."""


class ModelStack:
    """Models of several clients, all with the same initial parameters.

    Attributes:
        members: the client of each row.
        weights: (n, d) parameters, in the layout's order.
        velocity: (n, d) momentum of the gradients.
        buffers: (n, ...) by name.
    """

    def __init__(self, count: int, trainer: Trainer, base: Tensor, buffers: Buffers) -> None:
        self.trainer = trainer
        self.members = list(range(count))
        self.weights = base.to(trainer.weights).repeat(count, 1)
        self.velocity = torch.zeros_like(self.weights)
        self.buffers = {
            name: buffers[name].to(trainer.device).expand(count, *buffers[name].shape).clone()
            for name in select_buffers(trainer.model)
        }

    def move_to_front(self, members: Sequence[int]) -> None:
        """Reorder the rows so that these members come first."""
        if self.members[: len(members)] == list(members):
            return
        order = [*members, *(member for member in self.members if member not in set(members))]
        rows = torch.tensor([self.members.index(member) for member in order], device=self.weights.device)
        self.members, self.weights, self.velocity = order, self.weights[rows], self.velocity[rows]
        self.buffers = {name: buffer[rows] for name, buffer in self.buffers.items()}

    def take_step(self, inputs: Tensor, labels: Tensor, noises: Sequence[Tensor], rate: float) -> None:
        """Take one SGD step with the first rows, each with a batch of its own: inputs are (rows, batch, ...)."""
        weights, velocity = self.weights[: len(labels)], self.velocity[: len(labels)]
        gradient = self.compute_gradient(weights, inputs, labels, noises)
        take_sgd_step(weights, gradient, velocity, self.trainer.settings, rate)

    def compute_gradient(self, weights: Tensor, inputs: Tensor, labels: Tensor, noises: Sequence[Tensor]) -> Tensor:
        """Return each row's gradient of its own loss (n, d); no row enters the loss of another."""
        parameters = view_parameters(weights, self.trainer.layout)
        if self.trainer.stacked_gradients:
            gradient = torch.empty_like(weights)
            into = list(view_parameters(gradient, self.trainer.layout).values())
            self.trainer.stacked_gradients(list(parameters.values()), inputs, labels, into)
            return gradient
        parameters = {name: parameter.requires_grad_() for name, parameter in parameters.items()}
        buffers = {name: buffer[: len(weights)] for name, buffer in self.buffers.items()}
        losses = vmap(self._compute_loss)(parameters, buffers, inputs, labels, list(noises))  # (n,)
        gradients = torch.autograd.grad(losses.sum(), list(parameters.values()), materialize_grads=True)
        return torch.cat([gradient.flatten(1) for gradient in gradients], 1)

    def unstack(self) -> list[tuple[Tensor, Buffers]]:
        """Return the parameters (d,) and buffers of every member's model, in the order of members."""
        rows = [self.members.index(member) for member in range(len(self.members))]
        weights = self.weights.cpu()
        buffers = {name: buffer.cpu() for name, buffer in self.buffers.items()}
        return [(weights[row], {name: buffer[row].clone() for name, buffer in buffers.items()}) for row in rows]

    def _compute_loss(
        self, parameters: Buffers, buffers: Buffers, inputs: Tensor, labels: Tensor, noises: list[Tensor]
    ) -> Tensor:
        with DropoutReplay(noises):
            return cross_entropy(functional_call(self.trainer.model, parameters | buffers, inputs), labels)


class StackTrainer:
    """Trains any number of clients at once, with a trainer's model and settings."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.drops: dict[int, list[DropoutCall]] = {}

    def train(self, samples: StackedSamples, base: Tensor, buffers: Buffers, rate: float) -> ModelStack:
        """Train clients from a global model; fewest rows move if clients are sorted by size, the largest first."""
        settings, device = self.trainer.settings, self.trainer.device
        stack = ModelStack(len(samples.counts), self.trainer, base, buffers)
        sizes = [compute_batch_sizes(count, settings.batch, self.trainer.min_batch) for count in samples.counts]
        self.trainer.model.train()
        with torch.random.fork_rng([] if device == "cpu" else [device]):
            draws = DropoutStreams([derive(rng.initial_seed(), "dropout") for rng in samples.rngs], device)
            for _ in range(settings.epochs):
                orders = samples.shuffle()
                for group in group_batches(sizes, settings.batch):
                    batch = group.gather(orders)
                    noises = draws.draw_noises(self.find_drops(samples.inputs[:1], group.size), group.members)
                    stack.move_to_front(group.members)
                    stack.take_step(samples.inputs[batch], samples.labels[batch], noises, rate)
        return stack

    def find_drops(self, sample: Tensor, size: int) -> list[DropoutCall]:
        """Return where the model applies dropout to a batch of this size, given one sample (1, ...)."""
        if size not in self.drops:
            self.drops[size] = record_dropout_calls(
                self.trainer.model, torch.zeros_like(sample).repeat_interleave(size, 0)
            )
        return self.drops[size]

    def measure_client_bytes(self, sample: Tensor, examples: int) -> int:
        """Try a step of two clients, and return the bytes that a client with this many samples (1, ...) takes."""
        trainer = self.trainer
        size = max(trainer.min_batch, min(trainer.settings.batch, examples))
        inputs = torch.zeros_like(sample).repeat_interleave(size, 0)
        labels = torch.zeros(2, size, dtype=torch.long, device=trainer.device)
        stack = ModelStack(2, trainer, torch.zeros_like(trainer.weights), trainer.copy_buffers())
        trainer.model.train()
        with torch.random.fork_rng([] if trainer.device == "cpu" else [trainer.device]):
            noises = DropoutStreams([0, 0], trainer.device).draw_noises(self.find_drops(sample, size), [0, 1])
            stack.compute_gradient(stack.weights, inputs.expand(2, *inputs.shape), labels, noises)
            activations = measure_saved_bytes(trainer.model, inputs)
        return activations + ROWS_PER_CLIENT * trainer.weights.nbytes + examples * sample.nbytes


def view_parameters(rows: Tensor, layout: Layout) -> dict[str, Tensor]:
    """View rows (n, d) as the parameters (n, ...) of n models."""
    columns = zip(layout.columns.items(), layout.shapes, strict=True)
    return {name: rows[:, own].view(len(rows), *shape) for (name, own), shape in columns}


def measure_saved_bytes(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes that a model saves of a batch for its derivative."""
    sizes: list[int] = []

    def record(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    with saved_tensors_hooks(record, lambda tensor: tensor):
        model(inputs)
    return sum(sizes)
