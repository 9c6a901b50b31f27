"""Compares the published VAE's ranking of candidates with that by distance to the elected, on every data set.

    SNOWBALL_DATA=... python -m benchmarks.choices.ranking > benchmarks/results/ranking.json

It takes two rounds of each preset cpu/..., whose model advances by benign updates alone. The bottom-up election is the
paper's. `correlation` is Spearman's, between the scores that both judges give the candidates in the first step of the
top-down election. `same` counts the updates that both judges elect in the end, out of `elected`, and `infected` counts
the infected ones that each elects. The VAE is the preset's, with all its epochs.
"""

import json
import sys
from dataclasses import replace
from typing import Any, Literal

import torch
from scipy.stats import spearmanr

from benchmarks.inputs.rounds import Round, capture_rounds, parse_rounds
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import use_one_thread
from snowball.defenses import Context, Snowball
from snowball.defenses.snowball.judges import JUDGES
from snowball.records.presets import describe_presets
from snowball.rng import stream
from snowball.sim.presets import load_experiment

ROUNDS = (4, 8)
COMPARED: tuple[Literal["distance", "vae"], ...] = ("distance", "vae")


def compare_judges(taken: Round, snowball: Snowball) -> dict[str, Any]:
    """Run both judges in the same round, after the same bottom-up election."""
    updates, scores, elected = taken.updates, [], {}
    for name in COMPARED:
        verdict = replace(snowball, judge=name, grow_after=0)(updates, Context(round=1))
        selected = verdict.facts["order"] == 0
        judge = JUDGES[name](updates, updates.layout.names, snowball.vae, stream(0, "ranking"))
        scores.append(judge(selected.nonzero()[:, 0], (~selected).nonzero()[:, 0]).double())
        elected[name] = verdict.elected
    return {
        "round": taken.number,
        "correlation": float(spearmanr(*scores).statistic),
        "elected": int(elected["vae"].sum()),
        "same": int(torch.stack([*elected.values()]).all(0).sum()),
        "infected": {name: int((mask & taken.infected).sum()) for name, mask in elected.items()},
    }


def main() -> None:
    """Compare the judges on every data set."""
    cases = []
    for preset in (name for name in describe_presets() if name.startswith("cpu/")):
        snowball = load_experiment(preset).defense.build()
        tensors = capture_rounds(load_experiment(preset, ["defense.name=ideal"]), ROUNDS)
        with use_one_thread():
            for taken in parse_rounds(tensors):
                cases.append({"data": preset.removeprefix("cpu/"), **compare_judges(taken, snowball)})
                print(json.dumps(cases[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe_machine(), "cases": cases}, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
