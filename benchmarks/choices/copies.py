"""Measures what a fault of a public copy changes: whom the top-down election elects if it scores other inputs.

    nice -n 19 python -m benchmarks.choices.copies > benchmarks/results/copies.json

BackFed's copy trains the auto-encoder on the logistic function of differences, and scores the differences themselves,
limited to [-10, 10]. Both ways start from the same selectees of the stored rounds of tests/golden, with the same
auto-encoder, epochs and noise, and so differ in that alone. The elections are those of `baselines/reference.py`.
"""

import json
from math import ceil
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.baselines.reference import LATENT_SAMPLES, VAE, choose_selectees, elect_top_down
from benchmarks.files import GOLDEN, shorten_numbers
from benchmarks.measuring.machine import describe_machine

ROUNDS = ("mnist-k20-4-s1/1", "mnist-k20-4-s1/12", "mnist-cba/1", "mnist-cba/6", "mnist-cba/20", "fashion-cba/9")
FIRST_SHARE, STEP_SHARE = 0.1, 0.04
"""The shares of the rows that are selectees, and that join in a step."""


class RawScores(VAE):
    """The auto-encoder with the copy's scores."""

    @torch.no_grad()
    def error(self, difference: Tensor) -> float:
        """Return the error of a difference that did not go through the logistic function."""
        inputs = difference[None].clamp(-10, 10)
        mean, log_variance = self.encode(inputs)
        outputs = [self.decoder(self.sample(mean, log_variance)) for _ in range(LATENT_SAMPLES)]
        return sum(float(torch.sum((output - inputs) ** 2)) for output in outputs) / LATENT_SAMPLES


def read_round(name: str) -> dict[str, Tensor]:
    """Read a stored round: its infected rows, its votes, and its layers."""
    return {key.removeprefix(f"{name}/"): each for key, each in load_file(GOLDEN).items() if key.startswith(f"{name}/")}


def elect_round(name: str) -> dict[str, Any]:
    """Elect half of a stored round both ways, and count the rows that both elect and the infected ones."""
    found = read_round(name)
    rows = torch.cat([each.flatten(1) for key, each in found.items() if key.startswith("layer/")], 1)
    infected, count = {*found["infected"].nonzero()[:, 0].tolist()}, len(rows)
    first = choose_selectees(found["votes"].numpy(), ceil(FIRST_SHARE * count))
    published, raw = (
        {*elect_top_down(rows, first, count // 2, ceil(STEP_SHARE * count), generator=seed_generator(), build=build)}
        for build in (VAE, RawScores)
    )
    return {
        "round": name,
        "elected": count // 2,
        "same": len(published & raw),
        "infected": len(infected),
        "infected_elected": len(published & infected),
        "infected_elected_raw": len(raw & infected),
    }


def seed_generator() -> torch.Generator:
    """Return the source of first weights, batches and noise: the same for both ways."""
    return torch.Generator().manual_seed(1)


def main() -> None:
    """Print the counts of every round as JSON."""
    torch.set_num_threads(1)
    print(
        json.dumps(shorten_numbers({"machine": describe_machine(), "rounds": list(map(elect_round, ROUNDS))}), indent=1)
    )


if __name__ == "__main__":
    main()
