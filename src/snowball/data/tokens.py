"""Data sets of token ids: a sample is a row of integers, and the model has its own embedding."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from snowball.data.base import Dataset
from snowball.data.text import NO_WORD


@dataclass(frozen=True, eq=False)
class TokenDataset(Dataset):
    """Samples of (n, length) int64 token ids, which the model receives as they are; 0 is padding."""

    @cached_property
    def vocabulary_size(self) -> int:
        """One more than the highest token id."""
        return 1 + int(max(split.inputs.max() for split in (self.train, self.test)))

    @cached_property
    def rarest_token(self) -> int:
        """The token id, padding aside, that is rarest in the training samples; the lowest of several."""
        counts = self.train.inputs.flatten().bincount(minlength=max(2, self.vocabulary_size))
        counts[NO_WORD] = counts.max() + 1
        return int(counts.argmin())

    @property
    def input_shape(self) -> tuple[int]:
        """The number of tokens per sample."""
        return (self.train.inputs.shape[1],)

    def scale(self, inputs: Tensor) -> Tensor:
        """Convert token ids to float32."""
        return inputs.float()

    def standardise(self, scaled: Tensor) -> Tensor:
        """Convert scaled samples back to token ids."""
        return scaled.round().long()

    def normalise(self, inputs: Tensor) -> Tensor:
        """Return token ids unchanged."""
        return inputs

    def sample_batch(self) -> Tensor:
        """Return two raw samples that a model can be tried on; the second is of the highest token id."""
        first = self.train.inputs[:1]
        return torch.cat([first, torch.full_like(first, self.vocabulary_size - 1)])

    def draw_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of random tokens."""
        return torch.randint(self.vocabulary_size, (count, *self.input_shape), generator=rng)
