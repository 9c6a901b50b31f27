# Copyright (c) 2026, the Snowball contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The learning task: sites of unequal size learn digits, and some of them are hostile.

Nothing in this file depends on a framework or on the guard. Training depends on the seed, the site and the round only,
so the same sites send the same updates through any framework.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from snowball.attacks import CBA, set_up_attack
from snowball.data import Dataset, Split, load_dataset
from snowball.models import CNN, build_model
from snowball.rng import stream

State = dict[str, Tensor]

WIDTHS, INPUT_SHAPE, CLASSES = (8, 16, 64), (1, 28, 28), 10
BATCH_SIZE, LEARNING_RATE, MOMENTUM, EVALUATION_BATCH_SIZE = 20, 0.01, 0.9, 200
SCALE = 5.0
"""Factor by which a scaled backdoor lengthens its update."""

BACKDOOR = CBA(poison_ratio=0.5)
"""Stamps a white square on half of a hostile site's images, and calls them what it wants the model to call them."""


def send_trained(before: State, after: State) -> State:
    """Return the trained model."""
    return after


def scale_update(before: State, after: State) -> State:
    """Return a model that is several times as far from the global one."""
    return {name: before[name] + SCALE * (after[name] - before[name]) for name in after}


def send_nan(before: State, after: State) -> State:
    """Return NaN for every weight."""
    return {name: tensor * torch.nan for name, tensor in after.items()}


def send_nothing(before: State, after: State) -> None:
    """Return no model; the site then fails, and the framework tells the server so."""


def hang(before: State, after: State) -> State:
    """Return the model a day late; the server has to notice by itself."""
    time.sleep(86400)
    return after


BEHAVIOURS: dict[str, Callable[[State, State], State | None]] = {
    "clean": send_trained,
    "backdoor": send_trained,
    "scaled-backdoor": scale_update,
    "nan": send_nan,
    "silent": send_nothing,
    "hang": hang,
}
"""What a hostile site sends, given the global model and its trained one."""


@dataclass(frozen=True)
class Consortium:
    """Sites that train one model.

    Attributes:
        sizes: the number of training images of each site.
        hostile: the numbers of the hostile sites, from 1.
        behaviour: what hostile sites do; "clean" if they do nothing wrong.
        seed: fixes the first model, who holds which images, and the training.
    """

    sizes: tuple[int, ...]
    hostile: tuple[int, ...] = ()
    behaviour: str = "clean"
    seed: int = 1

    def train_site(self, site: int, round: int, before: State) -> State | None:
        """Train the global model at a site for one epoch, and return what the site sends; None if it sends nothing."""
        model = Network()
        model.load_state_dict(before)
        split = take_share(self, site)
        train_model(model, split, stream(self.seed, "site", site, "round", round))
        after = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        return BEHAVIOURS[self.behaviour](before, after) if site in self.hostile else after


class Network(CNN):
    """A small convolutional network, whose first weights depend on a seed only."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(WIDTHS, INPUT_SHAPE, CLASSES)
        self.load_state_dict(build_model("cnn-quarter", INPUT_SHAPE, CLASSES, stream(seed, "model")).state_dict())


@lru_cache(maxsize=1)
def load_digits() -> Dataset:
    """Load the sample of MNIST that comes with the package, once per process."""
    return load_dataset("mnist-sample")


@lru_cache(maxsize=16)
def take_share(consortium: Consortium, site: int) -> Split:
    """Return the training images that a site holds, poisoned if it is to plant a backdoor."""
    dataset, sizes = load_digits(), consortium.sizes
    if sum(sizes) > len(dataset.train):
        raise ValueError(f"the sites hold {sum(sizes)} images, and there are {len(dataset.train)}")
    order = torch.randperm(len(dataset.train), generator=stream(consortium.seed, "partition"))
    split = dataset.train[order[: sum(sizes)].split(sizes)[site - 1]]
    if site in consortium.hostile and "backdoor" in consortium.behaviour:
        rng = stream(consortium.seed, "poison", site)
        return BACKDOOR.poison(split, set_up_attack(BACKDOOR, dataset), site, rng)
    return split


def train_model(model: nn.Module, split: Split, rng: torch.Generator) -> None:
    """Train a model for one epoch."""
    optimiser = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    inputs = load_digits().normalise(split.inputs)
    for batch in torch.randperm(len(split), generator=rng).split(BATCH_SIZE):
        optimiser.zero_grad()
        cross_entropy(model(inputs[batch]), split.labels[batch]).backward()
        optimiser.step()


def measure_model(state: State) -> dict[str, float]:
    """Return a model's accuracy, and the share of triggered images that it takes for what the attackers want."""
    dataset, model = load_digits(), Network()
    model.load_state_dict(state)
    return {
        "main_accuracy": measure_accuracy(model, dataset.test),
        "backdoor_accuracy": measure_accuracy(model, BACKDOOR.probe(set_up_attack(BACKDOOR, dataset))),
    }


@torch.no_grad()
def measure_accuracy(model: nn.Module, split: Split) -> float:
    """Return the share of images whose label a model predicts."""
    parts = (part.split(EVALUATION_BATCH_SIZE) for part in (load_digits().normalise(split.inputs), split.labels))
    correct = [(model(inputs).argmax(1) == labels).sum() for inputs, labels in zip(*parts, strict=True)]
    return int(sum(correct)) / len(split)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Parse a setting such as "40,160,320"."""
    return tuple(int(number) for number in text.split(",") if number.strip())
