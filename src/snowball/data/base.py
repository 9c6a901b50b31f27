"""What a data set is once it is in memory: raw samples, their labels, and where they came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from snowball.errors import DataError


@dataclass(frozen=True, eq=False)
class Split:
    """Raw samples and their labels, in the same order."""

    inputs: Tensor  # (n, channels, height, width) uint8
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
class Dataset:
    """A data set in memory.

    Attributes:
        mean: what is taken from pixels scaled to 0..1, one a channel.
        std: what they are then divided by, one a channel.
        provenance: which copy this is; goes into a run's record.
        groups: (n,) the natural client of each training sample, where there is one.
    """

    name: str
    classes: int
    train: Split
    test: Split
    mean: tuple[float, ...]
    std: tuple[float, ...]
    provenance: Mapping[str, str | int | bool]
    groups: Tensor | None = None

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a sample."""
        channels, height, width = self.train.inputs.shape[1:]
        return channels, height, width

    def normalise(self, inputs: Tensor) -> Tensor:
        """Raw pixels as a model wants them: float32, shifted and scaled a channel."""
        return self.standardise(self.scale(inputs))

    def scale(self, inputs: Tensor) -> Tensor:
        """Raw pixels as float32 in 0..1."""
        return inputs.float() / 255

    def standardise(self, pixels: Tensor) -> Tensor:
        """Pixels in 0..1, shifted and scaled a channel."""
        mean = torch.tensor(self.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(-1, 1, 1)
        return (pixels - mean) / std

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""
        return torch.randint(256, (count, *self.input_shape), generator=rng, dtype=torch.uint8)


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
