"""Federated learning as research code does it: a DataLoader a client, an optimiser of torch's, dictionaries of tensors.

It shares no code with the package but the classes of the models, and the GRU's forward pass is torch's own. Samples
come ready to use, which such code rarely has: normalising them in every `__getitem__` would only be slower.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from snowball.models import TextGRU

Weights = dict[str, Tensor]
Batches = Iterable[Sequence[Tensor]]
Loader = Callable[[TensorDataset, int], Batches]

EVALUATION_BATCH = 200


class PlainGru(TextGRU):
    """The paper's GRU, run by torch."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores (n, classes) of texts as word vectors (n, tokens, width)."""
        _, last = self.gru(inputs)  # (2, n, h)
        scores: Tensor = self.fc2(torch.relu(self.fc1(last.transpose(0, 1).flatten(1))))
        return scores


def use_torch_gru(model: nn.Module) -> nn.Module:
    """A copy of a model that runs as torch has it."""
    model = deepcopy(model)
    if isinstance(model, TextGRU):
        model.__class__ = PlainGru
    return model


@dataclass(frozen=True)
class Recipe:
    """How a client trains."""

    epochs: int
    batch: int
    rate: float
    momentum: float
    weight_decay: float


def shuffle_batches(samples: TensorDataset, batch: int) -> Batches:
    """What gives a client's batches, in a new order whenever it is gone through."""
    return DataLoader(samples, batch_size=batch, shuffle=True)


def train_client(
    model: nn.Module, weights: Weights, samples: TensorDataset, recipe: Recipe, loader: Loader = shuffle_batches
) -> Weights:
    """What a client's training makes of the global weights."""
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
    """Train one client after the other."""
    return [train_client(model, weights, samples, recipe, loader) for samples in cohort]


def compute_differences(weights: Weights, trained: Sequence[Weights], layer: str) -> Tensor:
    """(K, d) what the clients changed in one layer."""
    return torch.stack([(local[layer] - weights[layer]).flatten() for local in trained])


def average_weights(trained: Sequence[Weights], examples: Sequence[int], elected: Iterable[int]) -> Weights:
    """The mean of the elected clients' weights, by their examples."""
    chosen = list(elected)
    total = sum(examples[client] for client in chosen)
    return {
        name: sum((trained[client][name] * (examples[client] / total) for client in chosen), torch.zeros(()))
        for name in trained[0]
    }


@torch.no_grad()
def measure_accuracy(model: nn.Module, weights: Weights, samples: TensorDataset) -> float:
    """The share of samples that a model with these weights labels right."""
    model.load_state_dict(weights)
    model.eval()
    right = 0
    for inputs, labels in DataLoader(samples, batch_size=EVALUATION_BATCH):
        right += int((model(inputs).argmax(1) == labels).sum())
    return right / len(samples)
