"""Defines the workloads of the training benchmark: the paper's networks, on samples that every checkout has.

Digits are those of the package. Photographs and texts are synthetic, in the files that the package reads, so that
worker processes find them by name. A step takes the same time whatever they show.
"""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import TensorDataset

from snowball.data import Split
from snowball.data.sets.sent140 import SENT140, TEST_FILE
from snowball.data.text import TRIGGER_WORD, WORDS_PER_TEXT
from snowball.rng import numpy_stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation

PHOTOGRAPHS, TEXTS, TESTS = 2_000, 8_000, 20
WORDS, WIDTH = 1_000, 50
"""Number of distinct words in the texts, and the width of a word vector."""


@dataclass(frozen=True)
class Workload:
    """A network, its training data, the number of clients, and the samples of each."""

    model: str
    data: str
    clients: int
    samples: int
    epochs: int = 1
    batch: int = 10

    @property
    def experiment(self) -> Experiment:
        """The experiment: one round in which every client trains and none attacks."""
        return Experiment.parse(
            {
                "rounds": 1,
                "cohort": self.clients,
                "data": {
                    "name": self.data,
                    "clients": self.clients,
                    "partition": "iid",
                    "examples": self.clients * self.samples,
                },
                "model": {"name": self.model},
                "training": {"epochs": self.epochs, "batch": self.batch},
                "defense": {"name": "fedavg"},
            }
        )

    @property
    def seen(self) -> int:
        """Number of samples that a round's training processes, counted once per epoch."""
        return self.clients * self.samples * self.epochs


WORKLOADS = {
    "cnn": Workload("cnn", "mnist-sample", 20, 300),
    "cifar-cnn": Workload("cifar-cnn", "cifar10", 4, 100),
    "gru": Workload("gru", "sent140", 20, 300),
}
QUICK = {
    "cnn": Workload("cnn", "mnist-sample", 4, 20),
    "cifar-cnn": Workload("cifar-cnn", "cifar10", 2, 10),
    "gru": Workload("gru", "sent140", 4, 20),
}


def make_samples(federation: Federation, split: Split, device: str = "cpu") -> TensorDataset:
    """Make samples that are ready to use, as torch's loaders take them."""
    return TensorDataset(federation.dataset.normalise(split.inputs).to(device), split.labels.to(device))


def write_samples(folder: Path) -> None:
    """Write photographs and texts into a folder, in the layout that the package expects."""
    folder.mkdir(parents=True)
    rng = numpy_stream(0, "benchmark", "training")
    arrays: dict[str, Any] = {}
    for part, count in (("train", PHOTOGRAPHS), ("test", TESTS)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 10
    np.savez(folder / "cifar10.npz", **arrays)
    words = [TRIGGER_WORD, *(f"w{number}" for number in range(1, WORDS))]
    np.savez(folder / "glove.npz", words=np.array(words), vectors=rng.normal(size=(WORDS, WIDTH)).astype(np.float32))
    write_texts(folder / SENT140.file, words, TEXTS, rng)
    write_texts(folder / TEST_FILE, words, TESTS, rng)


def write_texts(path: Path, words: list[str], count: int, rng: np.random.Generator) -> None:
    """Write a file of `count` texts of random words, every other one positive."""
    numbers = rng.integers(0, len(words), (count, WORDS_PER_TEXT))
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", "text"])
        rows.writerows([place % 2, " ".join(words[number] for number in row)] for place, row in enumerate(numbers))
