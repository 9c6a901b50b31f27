"""The benchmark of judges: if distant updates are infected, both judges leave them out and agree on the order."""

import torch

from benchmarks.choices import ranking
from benchmarks.inputs.rounds import Round
from snowball.defenses import Snowball
from snowball.defenses.snowball.vae import VAESettings
from snowball.updates import Updates


def test_judges_that_rank_alike_are_found_to() -> None:
    values = torch.randn(12, 20, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 1.0, 12)[:, None]
    values[:3] += 3.0
    updates = Updates.from_layers({"w": values}, clients=[f"{row:02}" for row in range(12)])
    snowball = Snowball(clusters=4, vae=VAESettings(first_epochs=200, tune_epochs=4, hidden=16, latent=4, samples=2))
    case = ranking.compare_judges(Round(7, updates, torch.arange(12) < 3), snowball)
    assert case["correlation"] > 0.8
    assert (case["round"], case["elected"], case["infected"]) == (7, 6, {"distance": 0, "vae": 0})
    assert 5 <= case["same"] <= 6
