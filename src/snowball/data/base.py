"""What a data set is once it is in memory: raw samples, their labels, and where they came from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from snowball.errors import DataError

Provenance = Mapping[str, str | int | float | bool]
"""Which copy of a data set this is; goes into a run's record."""


@dataclass(frozen=True, eq=False)
class Split:
    """Raw samples and their labels, in the same order."""

    inputs: Tensor  # (n, channels, height, width) uint8 pixels, or (n, words) int32 numbers of words
    labels: Tensor  # (n,) int64

    def __post_init__(self) -> None:
        """Refuse samples and labels that do not pair up."""
        if self.labels.shape != (len(self.inputs),):
            raise DataError(f"{len(self.inputs)} samples need as many labels, got shape {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "Split":
        """The samples that an index or mask tensor selects."""
        return Split(self.inputs[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset(ABC):
    """A data set in memory: what sets of images and of texts have in common.

    Attributes:
        groups: (n,) the natural client of each training sample, where there is one.
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
        """The shape of a sample as a model gets it."""

    @abstractmethod
    def scale(self, inputs: Tensor) -> Tensor:
        """Raw samples as float32."""

    @abstractmethod
    def standardise(self, scaled: Tensor) -> Tensor:
        """Scaled samples as a model wants them."""

    @abstractmethod
    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""

    def normalise(self, inputs: Tensor) -> Tensor:
        """Raw samples as a model wants them."""
        return self.standardise(self.scale(inputs))


@dataclass(frozen=True)
class Location:
    """Where a data set is read from: one file, or a folder of files."""

    source: Literal["sample", "folder", "cache", "download"]
    path: Path


class DatasetInfo(Protocol):
    """An entry of the table of data sets: enough to list it, find it and read it."""

    @property
    def name(self) -> str:
        """What settings and the command line call it."""
        ...

    @property
    def summary(self) -> str:
        """One line for a listing."""
        ...

    @property
    def needs(self) -> str:
        """What to fetch, and from where; empty where nothing is needed."""
        ...

    def locate(self) -> Location | None:
        """Where it is on this machine, if it is; reads no network."""
        ...

    def fetch(self) -> Location:
        """Where it is on this machine, after a download if need be."""
        ...

    def load(self) -> Dataset:
        """The data set in memory, from wherever it is found first."""
        ...
