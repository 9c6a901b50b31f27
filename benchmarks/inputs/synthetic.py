"""Makes synthetic rows: a common direction, label skew in a few dimensions, and noise.

One row in five is infected, and all infected rows share an offset.
"""

from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snowball.rng import numpy_stream
from snowball.updates import Updates

Shapes = Mapping[str, tuple[int, ...]]

SEED = 0
CLASSES = 10
SCALE = 1e-2
"""Standard deviation of a row's elements, roughly that of a real round."""


def make_factors(clients: int) -> NDArray[np.float32]:
    """Return (K, 12) mixing weights of each client's row: common direction, classes' share, offset of the infected."""
    generator = numpy_stream(SEED, "benchmark", "clients", clients)
    shares = generator.dirichlet(np.full(CLASSES, 0.5), clients) - 1 / CLASSES
    infected = np.arange(clients) >= clients - clients // 5
    return np.column_stack([np.ones(clients), shares, 0.6 * infected]).astype(np.float32)


def make_columns(factors: NDArray[np.float32], width: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Return (K, width) columns of all rows: the mixed directions, plus a little noise per row."""
    directions = generator.standard_normal((factors.shape[1], width), dtype=np.float32)
    noise = generator.standard_normal((len(factors), width), dtype=np.float32)
    return np.float32(SCALE) * (factors @ directions + np.float32(0.2) * noise)


def make_layers(clients: int, shapes: Shapes) -> dict[str, Tensor]:
    """Make a round's rows, one (K, ...) tensor per layer."""
    factors = make_factors(clients)
    generator = numpy_stream(SEED, "benchmark", "columns", clients)
    return {
        name: torch.from_numpy(make_columns(factors, prod(shape), generator)).view(clients, *shape)
        for name, shape in shapes.items()
    }


def make_updates(layers: Mapping[str, Tensor]) -> Updates:
    """Convert the rows to the package's updates, without Gram matrices yet; ids sort as the rows do."""
    count = len(next(iter(layers.values())))
    return Updates.from_layers(layers, clients=[f"{row:06d}" for row in range(count)])
