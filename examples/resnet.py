"""A network of your own in a simulated federation: a small ResNet with batch normalisation, defended by Snowball.

    python examples/resnet.py [ROUNDS]

A model is any callable that makes a torch module from the shape of a sample and the number of classes. Its weights come
from the experiment's seed. Clients' updates are the changes of its parameters. The running statistics of batch
normalisation are averaged over the clients that the defense elects.
"""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, relu

from snowball.models import MODELS, ModelInfo
from snowball.records.rounds import RoundRecord
from snowball.sim.engines.processes import ProcessEngine, count_cores
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate

WIDTHS = (8, 16, 32)
SIDE = 4


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return maps (n, width, height / stride, width / stride)."""
        maps = self.norm2(self.conv2(relu(self.norm1(self.conv1(inputs)))))
        return relu(maps + self.shortcut(inputs))


class ResNet(nn.Module):
    """A small ResNet with batch normalisation."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(input_shape[0], WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        self.blocks = nn.Sequential(*(Block(before, after, stride=2) for before, after in pairwise(WIDTHS)))
        self.fc = nn.Linear(WIDTHS[-1] * SIDE * SIDE, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return class scores (n, classes)."""
        maps = self.blocks(relu(self.norm(self.conv(inputs))))
        scores: Tensor = self.fc(adaptive_avg_pool2d(maps, SIDE).flatten(1))
        return scores


# At the top level, because worker processes import this file to find the model. A package names `ResNet` in the
# entry-point group `snowball.models` instead, and the command line then finds it too.
MODELS["resnet"] = ModelInfo("resnet", "a small ResNet with batch normalisation", ResNet)

SETTINGS: dict[str, Any] = {
    "rounds": 8,
    "cohort": 10,
    "data": {"name": "mnist-sample", "clients": 20, "examples": 2400},
    "model": {"name": "resnet"},
    "training": {"epochs": 2, "lr": 0.02},
    "attack": {"name": "cba", "malicious": 0.2},
    "defense": {"name": "snowball"},
}


def run_rounds(**changes: Any) -> Iterator[RoundRecord]:
    """Simulate the federation, with some settings changed, on all cores."""
    experiment = Experiment.parse(SETTINGS | changes)
    return simulate(Federation.build(experiment), partial(ProcessEngine, workers=count_cores()))


if __name__ == "__main__":
    for record in run_rounds(rounds=int(sys.argv[1]) if len(sys.argv) > 1 else SETTINGS["rounds"]):
        accuracy, backdoor = record["main_accuracy"], record["backdoor_accuracy"]
        print(f"round {record['round']}: main accuracy {accuracy:.3f}, backdoor accuracy {backdoor:.3f}")  # noqa: T201
