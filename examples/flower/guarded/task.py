"""The learning task: a small network for digits. Nothing in this file depends on Flower or on the guard."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.data import Dataset, Split, load_dataset
from snowball.data.partition import PARTITIONS
from snowball.models import build_model
from snowball.rng import numpy_stream, stream

SEED, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 1, 20, 0.01, 0.9


def load_digits() -> Dataset:
    """Load the sample of MNIST that comes with the package."""
    return load_dataset("mnist-sample")


def build_network(dataset: Dataset) -> nn.Module:
    """Build a small convolutional network, the same on every machine."""
    return build_model("cnn-quarter", dataset.input_shape, dataset.classes, stream(SEED, "model"))


def take_share(dataset: Dataset, client: int, clients: int, examples: int) -> Split:
    """Return the training examples that a client holds."""
    shares = PARTITIONS["iid"](dataset.train.labels, clients, numpy_stream(SEED, "partition"))
    return dataset.train[shares[client][:examples]]


def train_model(model: nn.Module, dataset: Dataset, split: Split, epochs: int, rng: torch.Generator) -> float:
    """Train a model on some examples, and return the last loss."""
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    inputs = dataset.normalise(split.inputs)
    for _ in range(epochs):
        for batch in torch.randperm(len(split), generator=rng).split(BATCH_SIZE):
            optimiser.zero_grad()
            loss = cross_entropy(model(inputs[batch]), split.labels[batch])
            loss.backward()
            optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def measure_accuracy(model: nn.Module, dataset: Dataset, split: Split) -> float:
    """Return the share of examples whose label a model predicts."""
    batches = zip(split.inputs.split(200), split.labels.split(200), strict=True)
    correct: list[Tensor] = [(model(dataset.normalise(x)).argmax(1) == y).sum() for x, y in batches]
    return int(sum(correct)) / len(split)
