"""The CNN pools before the ReLU: a quarter of the work, and bit-identical to the paper's order."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, max_pool2d, relu

from snowball.data import load_dataset
from snowball.models import CNN, build_model
from snowball.rng import stream


def as_published(model: CNN, inputs: Tensor) -> Tensor:
    maps = max_pool2d(relu(model.conv1(inputs)), 2)
    maps = max_pool2d(relu(model.conv2(maps)), 2)
    scores: Tensor = model.fc2(relu(model.fc1(maps.flatten(1))))
    return scores


def test_scores_and_gradients_are_those_of_the_published_order() -> None:
    dataset = load_dataset("mnist-sample")
    inputs, labels = dataset.normalise(dataset.train.inputs[:50]), dataset.train.labels[:50]
    model = build_model("cnn-quarter", dataset.input_shape, dataset.classes, stream(0, "model"))
    assert isinstance(model, CNN)
    ours, theirs = model(inputs), as_published(model, inputs)
    assert torch.equal(ours, theirs)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(cross_entropy(scores, labels), parameters) for scores in (ours, theirs)]
    assert all(map(torch.equal, *gradients))
