"""The benchmark of seats: elected updates and distances, on rounds with obvious answers."""

import torch

from benchmarks.choices.seats import count_seats
from benchmarks.inputs.rounds import Round
from snowball.defenses import Snowball
from snowball.updates import Updates


def test_a_dense_majority_of_infected_updates_wins_the_seats() -> None:
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(20, 30, generator=rng)
    values[:14] = values[0] + 0.01 * torch.randn(14, 30, generator=rng)
    updates = Updates.from_layers({"w": values}, clients=[f"{row:02}" for row in range(20)])
    found = count_seats(
        Round(3, updates, torch.arange(20) < 14), Snowball(clusters=4, first_share=0.2, ballot_floor=0.0)
    )
    assert (found["round"], found["selectees"], found["infected"], found["share"]) == (3, 4, 4, 0.7)
    assert found["together"] < 0.1
    assert 0.8 < found["between"] < 1.2
