from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from snowball.rng import stream
from snowball.updates import Layout, Updates

LAYOUT = Layout(
    ("conv.weight", "conv.bias", "hidden.weight", "last.weight", "last.bias"),
    ((4, 3, 3, 3), (4,), (12, 10), (10, 12), (10,)),
)


@dataclass(frozen=True, eq=False)
class PlantedRound:
    """A made-up round, the model that it starts from, and (n,) who is infected, in the order of arrival."""

    updates: Updates
    base: Tensor
    infected: Tensor

    @property
    def infected_by_client(self) -> Tensor:
        """(n,) who is infected, in the order of client ids."""
        return self.infected[self.updates.by_client]


def plant_round(
    seed: int,
    rows: int = 50,
    infected: int = 0,
    together: float = 1.0,
    undo: float = 1.0,
    lean: float = 0.0,
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
    arrival = torch.randperm(rows, generator=rng).tolist()
    ids = [f"{seed if fresh else 'client'} {row:02}" for row in torch.randperm(rows, generator=fixed).tolist()]
    examples = torch.randint(10, 100, (rows,), generator=rng).double()
    updates = Updates((values[arrival] * 1e-2).float(), examples, tuple(ids[row] for row in arrival), LAYOUT)
    return PlantedRound(updates, base.float(), marked[arrival])


@pytest.fixture
def make_round() -> Callable[..., PlantedRound]:
    """Makes up a round."""
    return plant_round
