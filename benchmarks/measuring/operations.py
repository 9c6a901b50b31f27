"""Counts the arithmetic of a training step, and measures how much arithmetic a machine can do.

It counts multiplications and additions of convolutions, dense and recurrent layers, as torch.utils.flop_counter does:
what the network needs, not what a program spends on it.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

SIZES = (128, 256, 384, 512, 1024)
"""Sides of the square matrices whose product is timed: the best one depends on the machine's caches."""

PEAK_SECONDS = 0.05
"""Seconds per size: the fastest product within them counts."""


def count_step_operations(model: nn.Module, inputs: Tensor) -> int:
    """Count the floating-point operations of a training step on a batch: the forward pass and SGD's gradients."""
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
    """Count one product per output, and as much for each gradient; the samples need no gradient."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    forward = 2 * result.numel() * layer.weight[0].numel()
    return (3 if given.requires_grad else 2) * forward


def count_recurrent(layer: nn.Module, given: Tensor, _: Any) -> int:
    """Count three gates per token and direction, of the word and of the state.

    The first state is zero and needs no gradient. The gradient of the words is assumed not to be needed.
    """
    assert isinstance(layer, nn.GRU)
    rows, tokens, width = given.shape
    state = 2 * 2 * rows * 3 * layer.hidden_size * layer.hidden_size  # both directions, per token
    words = 2 * 2 * rows * 3 * layer.hidden_size * width
    return tokens * 2 * words + (3 * tokens - 1) * state


COUNTS: dict[type[nn.Module], Callable[[nn.Module, Tensor, Any], int]] = {
    nn.Linear: count_dense,
    nn.Conv2d: count_dense,
    nn.GRU: count_recurrent,
}


def measure_peak(device: str = "cpu", seconds: float = PEAK_SECONDS) -> float:
    """Return the floating-point operations per second of the best float32 matrix product, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return max(measure_product_rate(size, device, seconds) for size in SIZES)
    finally:
        torch.set_num_threads(threads)


def measure_product_rate(size: int, device: str, seconds: float) -> float:
    """Return the floating-point operations per second of the fastest of several products of one size."""
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


def measure_copy_rate(size: int, seconds: float = PEAK_SECONDS) -> float:
    """Return the bytes per second, read and written, of the fastest of several copies of an array of `size` bytes."""
    source, target = torch.rand(size // 4), torch.empty(size // 4)
    best, ends = float("inf"), perf_counter() + seconds
    while perf_counter() < ends or best == float("inf"):
        start = perf_counter()
        target.copy_(source)
        best = min(best, perf_counter() - start)
    return 2 * source.nbytes / best


def wait_for_device(device: str) -> None:
    """Wait until a GPU has finished its work."""
    if device != "cpu":
        torch.cuda.synchronize()
