"""Measures how well Snowball's VAE separates infected from benign updates, trained on updates or on differences.

    python -m benchmarks.choices.latent > benchmarks/results/latent.json

It takes two rounds. One is MNIST, from the preset cpu/mnist with the paper's 100 rounds: the last round without a
top-down election. The other is harder: Fashion-MNIST, stored in tests/golden. In each round it trains the package's
VAE on the updates of the selectees, and another VAE on the differences between them.

- Input: `vae` is the published judge's, the logistic function of updates or differences; `vae-span` scales these to
  unit mean square.
- Learned: `updates`; `differences`; and `updates, more steps`, because 5 selectees have 20 differences, on which a VAE
  takes three times as many steps per epoch.
- AUC, the chance that an infected candidate scores higher than a benign one: by `code`, the distance of its code from
  the mean code of the training data; by `error`, its reconstruction error; or, without a VAE, by `distance`, the mean
  squared distance to the selectees. A VAE trained on differences scores a candidate by its mean over the selectees.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.files import GOLDEN
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import use_one_thread
from snowball.defenses import Context, SnowballMinus
from snowball.defenses.snowball.judges import JUDGES
from snowball.defenses.snowball.layers import select_voting_layers
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.rng import stream
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.presets import load_experiment
from snowball.updates import Updates

ASSIGNMENTS = ("rounds=100",)
LAST, WORKERS, REPEATS = 25, 1, 5
"""The round, the number of worker processes, and the number of VAEs per AUC."""

STORED = "fashion-cba/9"
CLUSTERS = 11

PUBLISHED, LONGER = "vae", "updates, more steps"
SHOWN = ("updates", "differences")
CASES = ((PUBLISHED, LONGER), *((judge, learned) for judge in (PUBLISHED, "vae-span") for learned in SHOWN))
Case = dict[str, Any]


@dataclass(frozen=True)
class Round:
    """The voting layers of a round."""

    updates: Updates
    infected: Tensor  # (n,) bool
    selectees: Tensor  # (n,) bool


def simulate_round(last: int, assignments: Sequence[str]) -> Round:
    """Simulate up to a round."""
    kept: dict[str, Any] = {}

    def observe(updates: Updates, malicious: Sequence[bool], number: int) -> None:
        names = select_voting_layers(updates.layout, "ends")
        layers = {name: updates.read_columns(updates.layout.columns[name]) for name in names}
        kept["updates"] = Updates.from_layers(layers, updates.examples, updates.clients)
        kept["infected"] = torch.tensor(malicious)

    federation = Federation.build(load_experiment("cpu/mnist", assignments))
    for record in simulate(federation, partial(ProcessEngine, workers=WORKERS), observe=observe):
        if record["round"] == last:
            break
    elected = dict(zip(record["participants"], record["elected"], strict=True))
    chosen = torch.tensor([elected[client] for client in kept["updates"].clients])
    return Round(kept["updates"], kept["infected"], chosen)


def read_stored_round(name: str) -> Round:
    """Read a round of tests/golden, with the selectees that the paper's settings elect."""
    tensors = load_file(GOLDEN)
    prefix, infected = f"{name}/layer/", tensors[f"{name}/infected"]
    layers = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    updates = Updates.from_layers(layers, clients=[f"{row:03}" for row in range(len(infected))])
    elected = SnowballMinus(clusters=CLUSTERS, ballot_floor=0.0)(updates, Context(round=1)).elected
    return Round(updates, infected, elected)


def train_vae(taken: Round, judge: str, learned: str, settings: VAESettings, repeat: int) -> tuple[VAE, Tensor, Tensor]:
    """Return a trained VAE, its training data (m, d), and the inputs to score for each candidate (c, s, d)."""
    rng = stream(0, "latent", judge, learned, repeat)
    made = JUDGES[judge](taken.updates, taken.updates.layout.names, settings, rng)
    rows, vae = made.rows, made.vae  # type: ignore[attr-defined]
    selectees, candidates = rows[taken.selectees], rows[~taken.selectees]
    pairs = (selectees[:, None] - selectees)[~torch.eye(len(selectees), dtype=torch.bool)]
    apart = candidates[:, None] - selectees
    known, asked = (pairs, torch.cat([apart, -apart], 1)) if learned == SHOWN[1] else (selectees, candidates[:, None])
    more = ceil(len(pairs) / vae.batch) // ceil(len(selectees) / vae.batch) if learned == LONGER else 1
    vae.learn(known, more * settings.first_epochs)
    return vae, known, asked


def measure_vaes(taken: Round, judge: str, learned: str, settings: VAESettings, repeats: int = REPEATS) -> Case:
    """Measure how well several VAEs separate infected from benign candidates."""
    infected = taken.infected[~taken.selectees]
    by_code, by_error = [], []
    for repeat in range(repeats):
        vae, known, asked = train_vae(taken, judge, learned, settings, repeat)
        every = asked.flatten(0, 1)
        apart = (vae.codes(every).double() - vae.codes(known).double().mean(0)).square().sum(1)
        by_code.append(compute_auc(infected, apart.view(asked.shape[:2]).mean(1)))
        by_error.append(compute_auc(infected, vae.errors(every).view(asked.shape[:2]).mean(1)))
    return {"judge": judge, "learned": learned, "code_auc": by_code, "error_auc": by_error}


def compute_auc(infected: Tensor, scores: Tensor) -> float:
    """Return the chance that an infected candidate scores higher than a benign one."""
    return float(roc_auc_score(infected.numpy(), scores.numpy()))


def measure_distance(taken: Round) -> float:
    """Return the AUC of the mean squared distance to the selectees."""
    rows = taken.updates.values.double()
    apart = torch.cdist(rows[~taken.selectees], rows[taken.selectees]).square().mean(1)
    return compute_auc(taken.infected[~taken.selectees], apart)


def measure_round(taken: Round, settings: VAESettings, repeats: int = REPEATS) -> dict[str, Any]:
    """Take all measurements of a round."""
    return {
        "clients": len(taken.infected),
        "infected": int(taken.infected.sum()),
        "selectees": int(taken.selectees.sum()),
        "infected_selectees": int((taken.infected & taken.selectees).sum()),
        "distance_auc": measure_distance(taken),
        "cases": [measure_vaes(taken, judge, learned, settings, repeats) for judge, learned in CASES],
    }


def measure_rounds() -> dict[str, dict[str, Any]]:
    """Measure both rounds, and describe the origin of each."""
    settings = VAESettings()
    with use_one_thread():
        played, kept = simulate_round(LAST, ASSIGNMENTS), read_stored_round(STORED)
        return {
            "MNIST": {"of": f"round {LAST} of cpu/mnist, {', '.join(ASSIGNMENTS)}", **measure_round(played, settings)},
            "Fashion": {"of": f"{STORED} of tests/golden", **measure_round(kept, settings)},
        }


if __name__ == "__main__":
    print(json.dumps({"machine": describe_machine(), "rounds": measure_rounds()}, indent=1))
