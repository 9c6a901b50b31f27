"""Data sets in memory: raw samples, their labels, and their origin."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from snowball.errors import DataError

Provenance = Mapping[str, str | int | float | bool]
"""Identifies the copy of a data set in a run's record."""


@dataclass(frozen=True, eq=False)
class Split:
    """Raw samples and their labels, in the same order."""

    inputs: Tensor  # (n, channels, height, width) uint8 pixels, or (n, words) int32 word numbers
    labels: Tensor  # (n,) int64

    def __post_init__(self) -> None:
        """Reject samples and labels of different counts."""
        if self.labels.shape != (len(self.inputs),):
            raise DataError(f"{len(self.inputs)} samples need as many labels, got shape {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "Split":
        """Select samples by an index or mask tensor."""
        return Split(self.inputs[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """A data set in memory, of images or of texts.

    Attributes:
        groups: (n,) the natural client of each training sample, if the data set has natural clients.
    """

    name: str
    classes: int
    train: Split
    test: Split
    provenance: Provenance
    groups: Tensor | None = None

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a sample as the model receives it."""

    @abstractmethod
    def scale(self, inputs: Tensor) -> Tensor:
        """Convert raw samples to float32."""

    @abstractmethod
    def standardise(self, scaled: Tensor) -> Tensor:
        """Standardise scaled samples for the model."""

    @abstractmethod
    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of uniform noise."""

    def sample_batch(self) -> Tensor:
        """Return two raw samples that a model can be tried on."""
        return self.train.inputs[:2]

    def normalise(self, inputs: Tensor) -> Tensor:
        """Scale and standardise raw samples for the model."""
        return self.standardise(self.scale(inputs))


@dataclass(frozen=True)
class Location:
    """The source of a data set: one file, or a folder of files."""

    source: Literal["sample", "folder", "cache", "download"]
    path: Path


class DatasetInfo(Protocol):
    """A known data set: enough to list it, find it and load it."""

    @property
    def name(self) -> str:
        """The name in settings and on the command line."""
        ...

    @property
    def summary(self) -> str:
        """One line for a listing."""
        ...

    @property
    def needs(self) -> str:
        """The files to fetch and their source; empty if none are needed."""
        ...

    def locate(self) -> Location | None:
        """Locate the data set on this machine, without the network; None if it is not here."""
        ...

    def fetch(self) -> Location:
        """Locate the data set on this machine, and download it if necessary."""
        ...

    def load(self) -> Dataset:
        """Load the data set from where it is found first."""
        ...
