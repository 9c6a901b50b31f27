"""Federated learning as research code does it: one DataLoader per client, torch's optimisers, dictionaries of tensors.

It shares only the model classes with the package, and not the forward passes of the CNN and the GRU. Samples are ready
to use, which is rare in such code: normalising them in every `__getitem__` would only be slower.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from snowball.models import CNN, TextGRU
from snowball.models.cnn import PADDING

Weights = dict[str, Tensor]
Batches = Iterable[Sequence[Tensor]]
Loader = Callable[[TensorDataset, int], Batches]

EVALUATION_BATCH = 200


class PlainGru(TextGRU):
    """The paper's GRU, run by torch."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return class scores (n, classes) for texts given as word vectors (n, tokens, width)."""
        _, last = self.gru(inputs)  # (2, n, h)
        scores: Tensor = self.fc2(torch.relu(self.fc1(last.transpose(0, 1).flatten(1))))
        return scores


class PlainCNN(CNN):
    """The paper's CNN with whole convolutions, including what pooling drops."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return class scores (n, classes) of images (n, channels, height, width)."""
        maps = self._pool(self.conv1(inputs))
        maps = self._pool(self.conv2(maps))
        scores: Tensor = self.fc2(torch.relu(self.fc1(maps.flatten(1))))
        return scores


def use_plain_forward(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose forward pass is torch's own, or written as in the paper."""
    model = use_torch_gru(model)
    if isinstance(model, CNN):
        model.__class__ = PlainCNN
        model.conv1.padding = model.conv2.padding = (PADDING, PADDING)
    return model


def use_torch_gru(model: nn.Module) -> nn.Module:
    """Return a copy of a model that uses torch's own GRU."""
    model = deepcopy(model)
    if isinstance(model, TextGRU):
        model.__class__ = PlainGru
    return model


@dataclass(frozen=True)
class Recipe:
    """The settings of a client's local training."""

    epochs: int
    batch: int
    rate: float
    momentum: float
    weight_decay: float


def shuffle_batches(samples: TensorDataset, batch: int) -> Batches:
    """Make an iterable of a client's batches, which shuffles them on every pass."""
    return DataLoader(samples, batch_size=batch, shuffle=True)


def train_client(
    model: nn.Module, weights: Weights, samples: TensorDataset, recipe: Recipe, loader: Loader = shuffle_batches
) -> Weights:
    """Train a client from the global weights, and return its weights."""
    model.load_state_dict(weights)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), recipe.rate, recipe.momentum, weight_decay=recipe.weight_decay)
    criterion = nn.CrossEntropyLoss()
    batches = loader(samples, recipe.batch)
    for _ in range(recipe.epochs):
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def train_cohort(
    model: nn.Module,
    weights: Weights,
    cohort: Iterable[TensorDataset],
    recipe: Recipe,
    loader: Loader = shuffle_batches,
) -> list[Weights]:
    """Train the clients one after another."""
    return [train_client(model, weights, samples, recipe, loader) for samples in cohort]


def compute_differences(weights: Weights, trained: Sequence[Weights], layer: str) -> Tensor:
    """Return the (K, d) changes that the clients made to one layer."""
    return torch.stack([(local[layer] - weights[layer]).flatten() for local in trained])


def average_weights(trained: Sequence[Weights], examples: Sequence[int], elected: Iterable[int]) -> Weights:
    """Average the elected clients' weights, weighted by their examples."""
    chosen = list(elected)
    total = sum(examples[client] for client in chosen)
    return {
        name: sum((trained[client][name] * (examples[client] / total) for client in chosen), torch.zeros(()))
        for name in trained[0]
    }


@torch.no_grad()
def measure_accuracy(model: nn.Module, weights: Weights, samples: TensorDataset) -> float:
    """Return the share of samples that a model with these weights classifies correctly."""
    model.load_state_dict(weights)
    model.eval()
    right = 0
    for inputs, labels in DataLoader(samples, batch_size=EVALUATION_BATCH):
        right += int((model(inputs).argmax(1) == labels).sum())
    return right / len(samples)
