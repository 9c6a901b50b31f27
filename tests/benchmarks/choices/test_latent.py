"""The benchmark of codes: its training data, its queries, and how it separates candidates."""

import pytest
import torch

from benchmarks.choices import latent
from snowball.defenses.snowball.vae import VAESettings
from snowball.updates import Updates

QUICK = VAESettings(first_epochs=20, hidden=16, latent=4, samples=2)


def a_round(rows: int = 12, infected: int = 3, selectees: int = 4) -> latent.Round:
    """Updates of which the infected lie far away."""
    values = 0.1 * torch.randn(rows, 20, generator=torch.Generator().manual_seed(0))
    values[:infected] += 2.0
    updates = Updates.from_layers({"w": values}, clients=[f"{row:02}" for row in range(rows)])
    return latent.Round(updates, torch.arange(rows) < infected, torch.arange(rows) >= rows - selectees)


def test_a_vae_learns_the_selectees_or_all_their_differences() -> None:
    taken = a_round()
    _, known, asked = latent.train_vae(taken, "vae", "updates", QUICK, 0)
    assert (known.shape, asked.shape) == ((4, 20), (8, 1, 20))
    _, known, asked = latent.train_vae(taken, "vae", "differences", QUICK, 0)
    assert (known.shape, asked.shape) == ((12, 20), (8, 8, 20))
    torch.testing.assert_close(known.sum(0), torch.zeros(20), rtol=0, atol=1e-5)
    torch.testing.assert_close(asked.sum(1), torch.zeros(8, 20), rtol=0, atol=1e-5)
    rows = taken.updates.values
    torch.testing.assert_close(asked[0, 0], rows[0] - rows[8])


@pytest.mark.parametrize("learned", ["updates", "differences"])
def test_infected_updates_that_lie_far_away_are_told_apart(learned: str) -> None:
    case = latent.measure_vaes(a_round(), "vae-span", learned, QUICK, repeats=2)
    assert min(case["error_auc"]) > 0.9


def test_the_distance_alone_tells_them_apart_too() -> None:
    assert latent.measure_distance(a_round()) == 1.0


def test_a_stored_round_has_its_selectees() -> None:
    taken = latent.read_stored_round(latent.STORED)
    assert (len(taken.infected), int(taken.infected.sum()), int(taken.selectees.sum())) == (50, 10, 5)


def test_a_result_has_every_case() -> None:
    result = latent.measure_round(a_round(), QUICK, repeats=1)
    assert (result["clients"], result["infected"], result["infected_selectees"]) == (12, 3, 0)
    assert [(case["judge"], case["learned"]) for case in result["cases"]] == list(latent.CASES)
