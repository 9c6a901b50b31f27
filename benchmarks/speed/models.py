"""Measures a training step of every network for images, beside one of the paper's CNN: batches of ten, one thread.

The networks take turns, and the least processor time of each counts, so that other work on the machine does not.

python -m benchmarks.speed.models > benchmarks/results/models.json
"""

import json
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import time_turns, use_one_thread
from snowball.models import build_model
from snowball.rng import stream
from snowball.sim.experiment import TrainingSettings
from snowball.sim.training.sgd import Trainer

BATCH, STEPS, TURNS, CLASSES = 10, 3, 7, 10
REFERENCE = "cnn"
NAMES = (REFERENCE, "cnn-quarter", "cifar-cnn", "resnet8", "resnet8-bn", "resnet18", "resnet18-bn")
SHAPES = {"28x28x1": (1, 28, 28), "32x32x3": (3, 32, 32)}


def prepare_steps(name: str, shape: tuple[int, int, int]) -> tuple[Callable[[], None], int]:
    """Return a function that takes some steps with a network, and the network's number of parameters."""
    model = build_model(name, shape, CLASSES, stream(0, "model"))
    row = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    trainer = Trainer(model, TrainingSettings(epochs=1, batch=BATCH))
    trainer.load(row, trainer.copy_buffers())
    inputs = torch.randn(STEPS * BATCH, *shape, generator=stream(1))
    labels = torch.arange(STEPS * BATCH) % CLASSES
    return partial(trainer.train, inputs, labels, 1e-6, stream(2)), len(row)


def measure_models() -> list[dict[str, str | float]]:
    """Return the milliseconds of a step of each network, and how many times as long it takes as the reference."""
    cases: list[dict[str, str | float]] = []
    for size, shape in SHAPES.items():
        prepared = {name: prepare_steps(name, shape) for name in NAMES}
        seconds = time_turns({name: take for name, (take, _) in prepared.items()}, TURNS)
        cases += [
            {
                "name": name,
                "size": size,
                "parameters": prepared[name][1],
                "milliseconds": 1e3 * each / STEPS,
                "times_cnn": each / seconds[REFERENCE],
            }
            for name, each in seconds.items()
        ]
    return cases


def main() -> None:
    """Print the steps as JSON."""
    with use_one_thread():
        cases = measure_models()
    print(json.dumps({"machine": describe_machine(), "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
