import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from snowball.layout import Layout
from snowball.rng import stream
from snowball.updates import Updates

sys.path.insert(0, str(Path(__file__).parent))

LAYOUT = Layout(
    ("conv.weight", "conv.bias", "hidden.weight", "last.weight", "last.bias"),
    ((4, 3, 3, 3), (4,), (12, 10), (10, 12), (10,)),
)

IMAGE_LAYOUT = Layout(
    ("conv.weight", "conv.bias", "dense.weight", "last.weight", "last.bias"),
    ((4, 3, 3, 3), (4,), (12, 36), (10, 12), (10,)),
)
"""A model that sees nine positions of an image, in each of four channels."""


@dataclass(frozen=True, eq=False)
class PlantedRound:
    """A made-up round, the model that it starts from, and (n,) who is infected."""

    updates: Updates
    base: Tensor
    infected: Tensor


def plant_round(
    seed: int,
    rows: int = 50,
    infected: int = 0,
    together: float = 1.0,
    undo: float = 1.0,
    lean: float = 0.0,
    labels: float = 0.0,
    fresh: bool = False,
) -> PlantedRound:
    """A round of noise about a common step, in which the infected leave traces. All but model and backdoor is seeded.

    Args:
        seed: seed of the noise, of the step, and of who arrives when.
        rows: clients in the round.
        infected: clients that are infected.
        together: length of the infected clients' common direction in each hidden layer, where the noise has about 1.
        undo: how far the infected undo the model, which has length 1.
        lean: how far the infected raise the weights of class 7, where the noise has a deviation of 0.1.
        labels: how far each honest client raises a class of its own, on features that all who raise it have in common.
        fresh: whether nobody was seen in an earlier round.
    """
    rng, fixed = stream(seed, "planted round"), stream(0, "planted model")
    base, backdoor = torch.randn(2, LAYOUT.width, generator=fixed, dtype=torch.float64)
    base /= base.norm()
    marked = torch.arange(rows) < infected
    values = torch.randn(rows, LAYOUT.width, generator=rng, dtype=torch.float64)
    values += 0.1 * torch.randn(LAYOUT.width, generator=rng, dtype=torch.float64)
    for columns in LAYOUT.columns.values():
        values[:, columns] /= (columns.stop - columns.start) ** 0.5
    for name in ("conv.weight", "hidden.weight"):
        direction = backdoor[LAYOUT.columns[name]]
        values[marked, LAYOUT.columns[name]] += together * direction / direction.norm()
    values[marked, LAYOUT.columns["last.weight"].start + 7 * 12 : LAYOUT.columns["last.weight"].start + 8 * 12] += lean
    values[marked] -= undo * base
    if labels:
        raise_labels(values, labels * (~marked).double(), seed)
    arrival = torch.randperm(rows, generator=rng).tolist()
    ids = [f"{seed if fresh else 'client'} {row:02}" for row in torch.randperm(rows, generator=fixed).tolist()]
    examples = torch.randint(10, 100, (rows,), generator=rng).double()
    updates = Updates((values[arrival] * 1e-2).float(), examples, tuple(ids[row] for row in arrival), LAYOUT)
    by_client = dict(zip(ids, marked.tolist(), strict=True))
    return PlantedRound(updates, base.float(), torch.tensor([by_client[client] for client in updates.clients]))


def raise_labels(values: Tensor, strengths: Tensor, seed: int) -> None:
    """Raise one class in each row, by (n,) strengths."""
    rows = torch.arange(len(values))
    classes = torch.randint(0, 10, (len(values),), generator=stream(seed, "planted labels"))
    features = 0.5 + torch.randn(10, 12, generator=stream(0, "planted features"), dtype=torch.float64)
    last = values[:, LAYOUT.columns["last.weight"]].view(len(values), 10, 12)
    last[rows, classes] += strengths[:, None] * features[classes]


def plant_image_round(
    seed: int, infected: int = 0, rewired: float = 1.0, position: int = 5, rows: int = 50
) -> PlantedRound:
    """A round of noise in which all that the infected share is how they rewire one position of the image.

    Args:
        seed: seed of the noise and of who arrives when.
        infected: clients that are infected.
        rewired: how far they move the weights at the position, where the noise has a deviation of 1.
        position: the position, of nine.
        rows: clients in the round.
    """
    rng = stream(seed, "planted image round")
    base = torch.randn(IMAGE_LAYOUT.width, generator=stream(0, "planted image model"))
    marked = torch.arange(rows) < infected
    values = torch.randn(rows, IMAGE_LAYOUT.width, generator=rng)
    dense = values[:, IMAGE_LAYOUT.columns["dense.weight"]].view(rows, 12, 4, 9)
    dense[marked, :, :, position] += rewired * torch.randn(12, 4, generator=stream(0, "planted trigger"))
    arrival = torch.randperm(rows, generator=rng)
    clients = tuple(f"client {row:02}" for row in arrival.tolist())
    updates = Updates(values[arrival] * 1e-2, torch.ones(rows, dtype=torch.float64), clients, IMAGE_LAYOUT)
    return PlantedRound(updates, base / base.norm(), marked)


@pytest.fixture
def make_image_round() -> Callable[..., PlantedRound]:
    """Makes up a round of a model that sees positions of an image."""
    return plant_image_round


@pytest.fixture
def make_round() -> Callable[..., PlantedRound]:
    """Makes up a round."""
    return plant_round
