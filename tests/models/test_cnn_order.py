"""The CNN pools before the ReLU and leaves out what pooling drops: the bits are those of the paper's order."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu

from snowball.data import load_dataset
from snowball.models import CNN, build_model
from snowball.rng import stream


def as_published(model: CNN, inputs: Tensor) -> Tensor:
    pool = partial(max_pool2d, kernel_size=2, padding=model.pool_padding)
    maps = pool(relu(conv2d(inputs, model.conv1.weight, padding=1)))
    maps = pool(relu(conv2d(maps, model.conv2.weight, padding=1)))
    scores: Tensor = model.fc2(relu(model.fc1(maps.flatten(1))))
    return scores


def build(name: str, inputs: Tensor) -> CNN:
    model = build_model(name, tuple(inputs.shape[1:]), 10, stream(0, "model"))
    assert isinstance(model, CNN)
    return model


@pytest.mark.parametrize(("rows", "columns"), [(28, 28), (28, 27), (27, 26)])
@pytest.mark.parametrize("name", ["cnn-quarter", "cnn-published"])
def test_scores_and_gradients_are_those_of_the_published_order(name: str, rows: int, columns: int) -> None:
    dataset = load_dataset("mnist-sample")
    inputs, labels = dataset.normalise(dataset.train.inputs[:20])[..., :rows, :columns], dataset.train.labels[:20]
    model = build(name, inputs)
    ours, theirs = model(inputs), as_published(model, inputs)
    assert torch.equal(ours, theirs)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(cross_entropy(scores, labels), parameters) for scores in (ours, theirs)]
    assert all(map(torch.equal, *gradients))


def test_only_outputs_that_pooling_uses_are_computed() -> None:
    shapes: list[torch.Size] = []
    model = build("cnn", torch.zeros(1, 1, 28, 27))
    for layer in (model.conv1, model.conv2):
        layer.register_forward_hook(lambda _, __, maps: shapes.append(maps.shape[2:]))
    model(torch.zeros(1, 1, 28, 27))
    assert shapes == [(26, 24), (10, 10)]
