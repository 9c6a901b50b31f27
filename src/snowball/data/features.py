"""Data sets of feature vectors: a sample is a row of numbers."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from snowball.data.base import Dataset


@dataclass(frozen=True, eq=False)
class FeatureDataset(Dataset):
    """Samples of (n, features) float32, which the model receives as they are."""

    @cached_property
    def lowest(self) -> Tensor:
        """The lowest value of each feature in the training samples, (features,)."""
        return self.train.inputs.amin(0)

    @cached_property
    def highest(self) -> Tensor:
        """The highest value of each feature in the training samples, (features,)."""
        return self.train.inputs.amax(0)

    @property
    def input_shape(self) -> tuple[int]:
        """The number of features."""
        return (self.train.inputs.shape[1],)

    def scale(self, inputs: Tensor) -> Tensor:
        """Return raw samples unchanged."""
        return inputs

    def standardise(self, scaled: Tensor) -> Tensor:
        """Return samples unchanged."""
        return scaled

    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of uniform noise, each feature within its range."""
        noise = torch.rand(count, *self.input_shape, generator=rng)
        return self.lowest + noise * (self.highest - self.lowest)
