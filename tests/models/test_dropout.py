"""Dropout in several models at once equals dropout in each alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from snowball.models import build_model, draw_from
from snowball.models.dropout import DROPOUTS, DropoutReplay, DropoutStreams, record_dropout_calls
from snowball.rng import stream

SEEDS = [stream(7, "client", client).initial_seed() for client in range(3)]


class Twice(nn.Module):
    """Drops maps in some memory format, then elements of the rest."""

    def __init__(self, drop: Callable[..., Tensor], inplace: bool = False) -> None:
        super().__init__()
        self.drop, self.inplace = drop, inplace
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, maps: Tensor) -> Tensor:
        kept = maps * self.weight
        first = self.drop(kept, 0.3, self.training, self.inplace)
        return functional.dropout(first.relu().sum(-1), 0.5, self.training) + kept.sum(-1)


def alone(model: nn.Module, inputs: Tensor, steps: int) -> Tensor:
    results = []
    for seed in SEEDS:
        with draw_from(torch.Generator().manual_seed(seed)):
            results.append(torch.stack([model(inputs) for _ in range(steps)]))
    return torch.stack(results)  # (models, steps, ...)


def together(model: nn.Module, inputs: Tensor, steps: int) -> Tensor:
    def one(weights: dict[str, Tensor], noises: list[Tensor]) -> Tensor:
        with DropoutReplay(noises):
            return functional_call(model, weights, inputs)

    weights = {name: torch.stack([weight.detach()] * len(SEEDS)) for name, weight in model.named_parameters()}
    with torch.random.fork_rng([]):
        draws, drops = DropoutStreams(SEEDS, "cpu"), record_dropout_calls(model, inputs)
        noises = [draws.draw_noises(drops, range(len(SEEDS))) for _ in range(steps)]
    return torch.stack([vmap(one)(weights, each) for each in noises], 1)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("drop", DROPOUTS[:1] + DROPOUTS[2:3])
def test_models_drop_what_each_drops_alone(
    drop: Callable[..., Tensor], inplace: bool, layout: torch.memory_format
) -> None:
    maps = torch.randn(5, 3, 4, 6, generator=stream(0)).contiguous(memory_format=layout)
    model = Twice(drop, inplace)
    assert torch.equal(together(model, maps, 3), alone(model, maps, 3))


@pytest.mark.parametrize(
    ("drop", "shape"), [(functional.dropout1d, (5, 3, 4)), (functional.dropout3d, (5, 3, 4, 2, 2))]
)
def test_whole_maps_of_other_shapes_are_dropped_too(drop: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    maps, model = torch.randn(shape, generator=stream(0)), Twice(drop)
    assert torch.equal(together(model, maps, 2), alone(model, maps, 2))


def test_memory_that_runs_otherwise_is_noted() -> None:
    photos = build_model("cifar-cnn-quarter", (3, 32, 32), 10, stream(0)).to(memory_format=torch.channels_last)
    maps, features = record_dropout_calls(photos, torch.zeros(4, 3, 32, 32))
    assert (maps.probability, features.probability) == (0.1, 0.5)
    assert maps.ones.shape == (4, 16, 16, 16)
    assert maps.ones.is_contiguous(memory_format=torch.channels_last)
    assert features.ones.shape == (4, 64)


def test_nothing_is_dropped_or_drawn_where_a_model_is_not_trained() -> None:
    model, maps, before = Twice(functional.dropout).eval(), torch.ones(2, 3), torch.get_rng_state()
    assert record_dropout_calls(model, maps) == []
    with DropoutReplay([]):
        assert torch.equal(model(maps), model(maps))
    assert torch.equal(torch.get_rng_state(), before)


def test_noting_draws_nothing() -> None:
    before = torch.get_rng_state()
    assert len(record_dropout_calls(Twice(functional.dropout), torch.ones(2, 3))) == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_waits_draws_nothing_meanwhile() -> None:
    drops = record_dropout_calls(Twice(functional.dropout), torch.ones(4, 3))
    with torch.random.fork_rng([]):
        waiting, steady = DropoutStreams(SEEDS, "cpu"), DropoutStreams(SEEDS, "cpu")
        waiting.draw_noises(drops, [0, 2])
        late = waiting.draw_noises(drops, [1])
        first = steady.draw_noises(drops, [0, 1, 2])
    assert all(torch.equal(one[0], other[1]) for one, other in zip(late, first, strict=True))
