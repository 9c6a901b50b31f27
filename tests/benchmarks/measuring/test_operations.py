"""The count of floating-point operations agrees with torch's own counter."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.baselines.plain import use_torch_gru
from benchmarks.measuring.operations import count_step_operations, measure_copy_rate, measure_product_rate
from snowball.models import build_model
from snowball.rng import stream

SHAPES = {"cnn": (1, 28, 28), "cifar-cnn": (3, 32, 32), "gru": (25, 50)}


def counted(model: nn.Module, inputs: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(cross_entropy(model(inputs), torch.zeros(len(inputs), dtype=torch.int64)))
    return counter.get_total_flops()


def network(name: str) -> nn.Module:
    return build_model(name, SHAPES[name], 10, stream(0, "model"))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("batch", [1, 10])
def test_a_step_of_the_plain_loop_is_as_much_as_torch_counts(name: str, batch: int) -> None:
    model, inputs = use_torch_gru(network(name)), torch.rand(batch, *SHAPES[name])
    assert count_step_operations(model, inputs) == counted(model, inputs)


@pytest.mark.parametrize("name", ["cnn", "cifar-cnn"])  # torch does not count the products of our GRU, in place
def test_our_networks_spend_what_they_need(name: str) -> None:
    inputs = torch.rand(10, *SHAPES[name])
    assert counted(network(name), inputs) == count_step_operations(network(name), inputs)


def test_counting_leaves_nothing_behind_in_the_model() -> None:
    model = network("cnn")
    first, second = (count_step_operations(model, torch.rand(2, *SHAPES["cnn"])) for _ in range(2))
    assert first == second


def test_a_product_and_a_copy_have_a_rate_however_short_the_time() -> None:
    assert measure_product_rate(16, "cpu", seconds=0) > 0
    assert measure_copy_rate(64, seconds=0) > 0
