"""What is learnt: digits, by a small network. Nothing in this file knows of Flower or of the guard."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.data import Dataset, Split, load
from snowball.data.partition import PARTITIONS
from snowball.models import build
from snowball.rng import numpy_stream, stream

SEED, BATCH, RATE, MOMENTUM = 1, 20, 0.01, 0.9


def digits() -> Dataset:
    """The sample of MNIST that comes with the package."""
    return load("mnist-sample")


def network(dataset: Dataset) -> nn.Module:
    """A small convolutional network, the same on every machine."""
    return build("cnn-quarter", dataset.input_shape, dataset.classes, stream(SEED, "model"))


def part(dataset: Dataset, client: int, clients: int, examples: int) -> Split:
    """What a client holds."""
    parts = PARTITIONS["iid"](dataset.train.labels, clients, numpy_stream(SEED, "partition"))
    return dataset.train[parts[client][:examples]]


def fit(model: nn.Module, dataset: Dataset, split: Split, epochs: int, rng: torch.Generator) -> float:
    """Train a model on some samples; the last loss."""
    optimiser = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
    inputs = dataset.normalise(split.inputs)
    for _ in range(epochs):
        for batch in torch.randperm(len(split), generator=rng).split(BATCH):
            optimiser.zero_grad()
            loss = cross_entropy(model(inputs[batch]), split.labels[batch])
            loss.backward()
            optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def accuracy(model: nn.Module, dataset: Dataset, split: Split) -> float:
    """The share of samples that a model labels as the split does."""
    batches = zip(split.inputs.split(200), split.labels.split(200), strict=True)
    right: list[Tensor] = [(model(dataset.normalise(x)).argmax(1) == y).sum() for x, y in batches]
    return int(sum(right)) / len(split)
