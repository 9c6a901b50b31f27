"""How much arithmetic a step of training is, and how much of it a machine can do.

Counted are the multiplications and additions of convolutions, dense and recurrent layers, as
torch.utils.flop_counter does; it is the network's need, not what a program spends on it.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

SIZES = (128, 256, 384, 512, 1024)
"""Sides of the square matrices whose product is timed: which suits a machine best depends on its caches."""

PEAK_SECONDS = 0.05
"""Time for each size: the best of what fits."""


def count_step_operations(model: nn.Module, inputs: Tensor) -> int:
    """Floating operations of a step of training on a batch: forward, and the gradients that SGD needs."""
    counted: list[int] = []

    def count(module: nn.Module, given: tuple[Any, ...], result: Any) -> None:
        counted.append(COUNTS[type(module)](module, given[0], result))

    layers = [module for module in model.modules() if type(module) in COUNTS]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    model(inputs)
    for hook in hooks:
        hook.remove()
    return sum(counted)


def count_dense(layer: nn.Module, given: Tensor, result: Tensor) -> int:
    """Every output is a product with its weights; both gradients cost as much, and nobody asks for that of samples."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    forward = 2 * result.numel() * layer.weight[0].numel()
    return (3 if given.requires_grad else 2) * forward


def count_recurrent(layer: nn.Module, given: Tensor, _: Any) -> int:
    """Three gates a token and direction, of the word and of the state; the first state is zero, and needs no gradient.

    The gradient of the words is taken to be one that nobody asks for.
    """
    assert isinstance(layer, nn.GRU)
    rows, tokens, width = given.shape
    state = 2 * 2 * rows * 3 * layer.hidden_size * layer.hidden_size  # both directions, a token
    words = 2 * 2 * rows * 3 * layer.hidden_size * width
    return tokens * 2 * words + (3 * tokens - 1) * state


COUNTS: dict[type[nn.Module], Callable[[nn.Module, Tensor, Any], int]] = {
    nn.Linear: count_dense,
    nn.Conv2d: count_dense,
    nn.GRU: count_recurrent,
}


def measure_peak(device: str = "cpu", seconds: float = PEAK_SECONDS) -> float:
    """Floating operations a second of the best product of float32 matrices, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return max(measure_product_rate(size, device, seconds) for size in SIZES)
    finally:
        torch.set_num_threads(threads)


def measure_product_rate(size: int, device: str, seconds: float) -> float:
    """Floating operations a second of the fastest of several products of one size."""
    left, right = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    result, best = torch.empty_like(left), float("inf")
    ends = perf_counter() + seconds
    while perf_counter() < ends or best == float("inf"):
        wait_for_device(device)
        start = perf_counter()
        torch.mm(left, right, out=result)
        wait_for_device(device)
        best = min(best, perf_counter() - start)
    return float(2 * size**3 / best)


def wait_for_device(device: str) -> None:
    """Wait until a GPU has done what it was asked for."""
    if device != "cpu":
        torch.cuda.synchronize()
