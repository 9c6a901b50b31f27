"""Real rounds against scikit-learn, voter by voter. README.md beside this file says how they were made."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from snowball.defenses import Context, SnowballMinus
from snowball.defenses.snowball.bottom_up import count_ballots
from snowball.updates import Updates

FILE = Path(__file__).parent / "rounds.safetensors"
CLUSTERS = 11

with safe_open(FILE, "pt") as stored:
    TENSORS = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
ROUNDS = sorted({name.rsplit("/", 1)[0] for name in TENSORS if name.endswith("/votes")})


def updates_of(taken: str) -> Updates:
    """A stored round; ids sort as the rows do, so that ties fall as in the reference."""
    prefix = f"{taken}/layer/"
    layers = {name.removeprefix(prefix): tensor for name, tensor in TENSORS.items() if name.startswith(prefix)}
    rows = len(TENSORS[f"{taken}/votes"])
    return Updates.from_layers(layers, clients=[f"{row:03}" for row in range(rows)])


@pytest.mark.parametrize("taken", ROUNDS)
def test_votes_equal_the_stored_votes_of_scikit_learn(taken: str) -> None:
    updates = updates_of(taken)
    ballots = count_ballots(updates, updates.layout.names, CLUSTERS)
    np.testing.assert_allclose(ballots.totals, TENSORS[f"{taken}/votes"], rtol=0, atol=1e-9)


def test_elections_of_trained_rounds_elect_nobody_infected() -> None:
    late = [taken for taken in ROUNDS if int(taken.split("/")[1]) >= 4]
    assert len(late) >= 4
    for taken in late:
        elected = SnowballMinus(clusters=CLUSTERS)(updates_of(taken), Context(round=1)).elected
        assert not (elected & TENSORS[f"{taken}/infected"]).any()


def test_stored_rounds_are_what_they_are_said_to_be() -> None:
    assert FILE.stat().st_size <= 2_000_000
    for taken in ROUNDS:
        infected = TENSORS[f"{taken}/infected"]
        assert infected.dtype == torch.bool
        assert infected.float().mean() == pytest.approx(0.2)
