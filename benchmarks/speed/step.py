"""Measures the time of a training step by operation: the paper's CNN, batches of ten, one thread.

Beside it stands the roofline of each part: what its arithmetic would take at the rate of the machine's best product, or
what its numbers would take to be read and written at the rate of a copy, whichever is longer.

It also measures how long it takes to prepare a client's samples: to select them from all samples, and normalise them.

python -m benchmarks.speed.step > benchmarks/results/step.json
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.baselines.plain import use_torch_gru
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.operations import count_step_operations, measure_copy_rate, measure_peak
from benchmarks.measuring.timing import time_fastest, use_one_thread
from snowball.data import load_dataset
from snowball.models import build_model
from snowball.rng import stream
from snowball.sim.experiment import TrainingSettings
from snowball.sim.training.sgd import Trainer

SAMPLES, BATCH, REPEATS = 600, 10, 5
PARTS = {
    "convolutions forward": ("mkldnn_convolution", "convolution", "_convolution", "conv2d"),
    "convolutions backward": ("convolution_backward",),
    "dense layers": ("mm", "addmm", "linear"),
    "SGD": ("_fused_sgd_",),
    "gradients added up": ("add_", "zero_", "fill_"),
    "ReLU and pooling": (
        *("clamp_min", "relu", "threshold_backward", "max_pool2d", "max_pool2d_with_indices"),
        "max_pool2d_with_indices_backward",
    ),
    "copies": ("copy_", "clone", "contiguous", "index"),
}
"""Torch operations by purpose; all others, and the time between them, are the rest."""


def measure_step() -> dict[str, float]:
    """Return the microseconds of a step's parts, from the fastest of several runs."""
    dataset = load_dataset("mnist-sample")
    inputs, labels = dataset.normalise(dataset.train.inputs[:SAMPLES]), dataset.train.labels[:SAMPLES]
    trainer = Trainer(build_network(), TrainingSettings(epochs=1, batch=BATCH))
    trainer.load(torch.cat([weight.detach().flatten() for weight in build_network().parameters()]))
    return min((profile_epoch(trainer, inputs, labels) for _ in range(REPEATS)), key=lambda parts: sum(parts.values()))


def build_network() -> torch.nn.Module:
    """Build the network with fresh weights."""
    return build_model("cnn", (1, 28, 28), 10, stream(0, "model"))


def profile_epoch(trainer: Trainer, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Return the microseconds of each part of a step, averaged over an epoch."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        trainer.train(inputs, labels, 1e-6, stream(0, "training"))
    return group_by_part([(event.key, event.self_cpu_time_total) for event in profiled.key_averages()])


def group_by_part(times: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Sum the times of operations by part, per step."""
    parts: dict[str, float] = defaultdict(float)
    for name, microseconds in times:
        operation = name.removeprefix("aten::")
        part = next((part for part, operations in PARTS.items() if operation in operations), "rest")
        parts[part] += microseconds / (SAMPLES / BATCH)
    return {part: parts[part] for part in (*PARTS, "rest")}


def count_traffic(model: torch.nn.Module, inputs: torch.Tensor) -> dict[str, tuple[float, int]]:
    """Return the operations of each part of a step, and how many floats it has to read and write at least."""
    parts: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def count(layer: Any, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        operations = 2 * result.numel() * layer.weight[0].numel()
        moved, backward = given[0].numel() + layer.weight.numel() + result.numel(), 1 + given[0].requires_grad
        if isinstance(layer, torch.nn.Linear):
            parts["dense layers"].append(((1 + backward) * operations, (1 + backward) * moved))
            return
        parts["convolutions forward"].append((operations, moved))
        parts["convolutions backward"].append((backward * operations, backward * moved))
        pooled = result.numel() // 4
        parts["ReLU and pooling"].append((0, 2 * (result.numel() + 3 * pooled)))  # an index takes two floats

    hooks = [layer.register_forward_hook(count) for layer in model.children()]
    model(inputs)
    for hook in hooks:
        hook.remove()
    weights = sum(weight.numel() for weight in model.parameters())
    parts["SGD"].append((0, 5 * weights))  # reads weights, gradient and velocity, and writes two of them
    parts["gradients added up"].append((0, 4 * weights))  # writes zeros, reads twice, writes the sum
    return {part: (sum(each[0] for each in work), sum(each[1] for each in work)) for part, work in parts.items()}


def measure_preparation() -> float:
    """Return the microseconds to prepare a client's samples, per step of an epoch over them."""
    dataset = load_dataset("mnist-sample")
    own = torch.randperm(len(dataset.train.labels), generator=stream(0, "client"))[:SAMPLES]

    def prepare(_: None) -> None:
        dataset.normalise(dataset.train.inputs[own])

    seconds, _ = time_fastest(prepare, lambda: None, REPEATS)
    return 1e6 * seconds / (SAMPLES / BATCH)


def main() -> None:
    """Print the parts as JSON, beside the time that the machine's best product would need for the whole arithmetic."""
    model, inputs = use_torch_gru(build_network()), torch.zeros(BATCH, 1, 28, 28)
    with use_one_thread():
        highest = measure_peak()
        rate = measure_copy_rate(sum(weight.nbytes for weight in model.parameters()))
        parts, ready = measure_step(), measure_preparation()
    ideal = 1e6 * count_step_operations(model, inputs) / highest
    work = count_traffic(model, inputs)
    roofline = {part: 1e6 * max(done / highest, 4 * moved / rate) for part, (done, moved) in work.items()}
    rates = {"peak_gflops": highest / 1e9, "copied_gigabytes_per_second": rate / 1e9}
    facts = {"ideal_microseconds": ideal, "preparation_microseconds": ready, "microseconds": parts}
    facts = {**rates, **facts, "roofline_microseconds": roofline}
    print(json.dumps({"machine": describe_machine(), **facts}, indent=1))


if __name__ == "__main__":
    main()
