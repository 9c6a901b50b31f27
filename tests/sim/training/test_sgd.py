from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snowball import models
from snowball.layout import Layout
from snowball.rng import stream
from snowball.sim.engines.base import use_one_thread
from snowball.sim.experiment import TrainingSettings
from snowball.sim.training.sgd import Trainer, view_channels_last

SETTINGS = TrainingSettings(epochs=3, batch=10)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with use_one_thread():
        yield


def build_model() -> torch.nn.Module:
    return models.build_model("cnn-quarter", (1, 28, 28), 10, stream(0, "model"))


def build_base() -> Tensor:
    tensors = dict(build_model().named_parameters())
    return Layout.from_tensors(tensors).flatten(tensors).detach()


def make_samples(count: int) -> tuple[Tensor, Tensor]:
    rng = stream(0, "samples")
    return torch.randn(count, 1, 28, 28, generator=rng), torch.randint(10, (count,), generator=rng)


def train_once(trainer: Trainer, count: int, seed: int = 0) -> Tensor:
    trainer.load(build_base())
    trainer.train(*make_samples(count), 0.01, stream(seed, "client"))
    return trainer.read_row()


def train_with_torch_optim(count: int) -> Tensor:
    """Train in the textbook way, with torch.optim.SGD."""
    plain = build_model().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    inputs, labels = make_samples(count)
    rng = stream(0, "client")
    for _ in range(SETTINGS.epochs):
        order = torch.randperm(count, generator=rng)
        for batch in order.split(SETTINGS.batch):
            optimiser.zero_grad()
            cross_entropy(plain(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    return Layout.from_tensors(dict(plain.named_parameters())).flatten(dict(plain.named_parameters())).detach()


@pytest.mark.parametrize("count", [7, 40, 43])
def test_training_is_torch_s_sgd_to_the_last_bit(count: int) -> None:
    assert torch.equal(train_once(Trainer(build_model(), SETTINGS), count), train_with_torch_optim(count))


def test_nothing_is_left_of_the_client_before() -> None:
    trainer = Trainer(build_model(), SETTINGS)
    first = train_once(trainer, 23)
    train_once(trainer, 40, seed=1)
    assert torch.equal(train_once(trainer, 23), first)
    assert not torch.equal(train_once(trainer, 23, seed=1), first)


def test_dropout_follows_the_clients_seed_and_leaves_the_global_generator_alone() -> None:
    dropping = models.build_model("cifar-cnn-quarter", (3, 8, 8), 10, stream(0, "model"))
    start = Layout.from_tensors(dict(dropping.named_parameters())).flatten(dict(dropping.named_parameters())).detach()
    trainer = Trainer(dropping, TrainingSettings(epochs=1, batch=10))

    def row(seed: int) -> Tensor:
        trainer.load(start)
        images = torch.ones(10, 3, 8, 8)  # all alike, so that their order says nothing
        trainer.train(images, torch.zeros(10, dtype=torch.int64), 0.01, stream(seed, "client"))
        return trainer.read_row()

    before = torch.get_rng_state()
    first, other = row(0), row(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(row(0), first)
    assert not torch.equal(other, first)


def test_a_row_comes_back_as_it_was_loaded() -> None:
    trainer = Trainer(build_model(), SETTINGS)
    trainer.load(build_base())
    assert torch.equal(trainer.read_row(), build_base())
    assert trainer.read_row().data_ptr() != trainer.weights.data_ptr()


def test_filters_keep_their_channels_last() -> None:
    view = view_channels_last(torch.arange(2 * 3 * 4 * 5), torch.Size((2, 3, 4, 5)))
    assert view.shape == (2, 3, 4, 5)
    assert view.is_contiguous(memory_format=torch.channels_last)
    assert view_channels_last(torch.arange(6), torch.Size((2, 3))).shape == (2, 3)
