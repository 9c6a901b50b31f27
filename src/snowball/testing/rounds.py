"""Toy rounds, and a model for them, for testing defenses and attacks."""

from typing import Any

import torch
from torch import Tensor

from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates


def make_toy_round(
    clients: int = 20,
    infected: int = 4,
    distance: float = 6.0,
    width: int = 40,
    seed: int = 0,
    dtype: Any = torch.float32,
) -> Updates:
    """Make a round of random updates in three layers; the last `infected` rows lie `distance` deviations away.

    Example counts differ; client ids are "c00", "c01" and so on.
    """
    rng = stream(seed, "toy round")
    rows = torch.randn(clients, width, generator=rng, dtype=torch.float64)
    rows[clients - infected :, 0] += distance * (clients > infected)
    layout = Layout(("first.weight", "middle.bias", "last.weight"), ((width - 4, 1), (2,), (1, 2)))
    examples = torch.randint(10, 100, (clients,), generator=rng).double()
    return Updates((rows * 1e-2).to(dtype), examples, tuple(f"c{row:02}" for row in range(clients)), layout)


class ToyModel:
    """A model for any row: its features are the samples' sums, times each of the first entries."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the (n, 2) scores of samples."""
        return self.compute_features(row, inputs)[:, :2]

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw samples of three numbers in 0..1."""
        return torch.rand(count, 3, generator=rng)

    def compute_features(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the (n, 4) features of samples."""
        return inputs.sum(1, keepdim=True).to(row.dtype) * row[:4]
