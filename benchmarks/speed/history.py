"""Measures the cost and the benefit of remembering clients, for FLDetector and FoolsGold at the paper's FEMNIST size.

    python -m benchmarks.speed.history > benchmarks/results/history.json

Nothing is trained. 160 rounds have the cohorts of the preset `paper/femnist`, 100 of 3,597 clients each:

- bytes: counts the state's rows, and those of them that a checkpoint has to write; every row is as long as the preset's
  model;
- decisions: in the same rounds a fifth of the clients is malicious. Against FLDetector, each honest client descends its
  own quadratic bowl, and malicious clients add noise to that. Against FoolsGold, each client has its own direction, the
  malicious ones share one, and all add noise of the same length. Small rows, three seeds;
- seconds: rounds at full length with the default bound, on one thread: the defense, the checkpoint as it is written,
  and the same checkpoint written whole.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import Case, use_one_thread
from snowball.defenses import Context, Defense, FLDetector, FoolsGold, Verdict
from snowball.defenses.history import MAX_REMEMBERED_CLIENTS
from snowball.models import build_model
from snowball.records.checkpoint import RunState, hash_tensor, save_state
from snowball.records.files import write_bytes
from snowball.rng import stream
from snowball.serialization import encode, pack
from snowball.sim.cohort import draw_cohort
from snowball.sim.experiment import Experiment
from snowball.sim.presets import load_experiment
from snowball.updates import Updates

PRESET, SHAPE, CLASSES = "paper/femnist", (1, 28, 28), 62
WINDOW = 5  # the preset's
BOUNDS = (None, 1024, MAX_REMEMBERED_CLIENTS, 256)
SEEDS = (1, 2, 3)
TIMED_ROUNDS, SETTLED_ROUND = 12, 7  # the default bound is reached from SETTLED_ROUND on
NOISE = {True: 3.0, False: 0.01}  # by whether a client in a bowl is malicious

Clients = Callable[[Tensor, Tensor, int], Tensor]
"""Returns the updates (n, d) of a cohort (n,), given the model (d,) and the round."""

MAKE: dict[str, Callable[[int | None], Defense]] = {
    "fldetector": lambda bound: FLDetector(window=WINDOW, remember=bound),
    "foolsgold": lambda bound: FoolsGold(remember=bound),
}


def is_malicious(cohort: Tensor, count: int) -> Tensor:
    """Return an (n,) mask of the malicious clients: the first fifth, as in the simulator."""
    return cohort < count // 5


def make_noise(width: int, seed: int) -> Clients:
    """Make clients that send noise."""
    return lambda cohort, _, round: torch.randn(len(cohort), width, generator=stream(seed, "history", "noise", round))


def make_bowls(count: int, seed: int, width: int = 8) -> Clients:
    """Make clients that descend one quadratic bowl each; the malicious ones are noisier."""
    goals = torch.randn(count, width, generator=stream(seed, "history", "goals"))
    curvature, noise = torch.linspace(0.5, 2, width), make_noise(width, seed)

    def send(cohort: Tensor, base: Tensor, round: int) -> Tensor:
        spread = torch.where(is_malicious(cohort, count), NOISE[True], NOISE[False])[:, None]
        return 0.1 * curvature * (goals[cohort] - base) + spread * noise(cohort, base, round)

    return send


def make_ways(count: int, seed: int, width: int = 500) -> Clients:
    """Make clients with one direction each, shared by the malicious ones, plus noise of the same length."""
    goals = torch.randn(count, width, generator=stream(seed, "history", "goals"))
    goals[is_malicious(torch.arange(count), count)] = goals[0].clone()
    noise = make_noise(width, seed)
    return lambda cohort, base, round: goals[cohort] + noise(cohort, base, round)


TOYS = {"fldetector": make_bowls, "foolsgold": make_ways}


def judge_rounds(
    defense: Defense, clients: Clients, experiment: Experiment, width: int
) -> Iterator[tuple[Tensor, Verdict, RunState]]:
    """Yield each round's cohort, the defense's verdict on it, and the state after it."""
    state = RunState(0, torch.zeros(width))
    for round in range(1, experiment.rounds + 1):
        cohort = torch.tensor(draw_cohort(experiment, round))
        rows = clients(cohort, state.base, round)
        updates = Updates.from_layers({"w": rows}, clients=[str(client) for client in cohort.tolist()])
        verdict = defense(
            updates,
            Context(round=round, rounds=experiment.rounds, base=state.base, seed=experiment.seed, state=state.defense),
        )
        state = RunState(round, state.base + verdict.delta, verdict.state)
        yield cohort, verdict, state


def count_decisions(name: str, bound: int | None, seed: int, *changes: str) -> Case:
    """Count the clients that a defense with this bound knows and leaves out, and the rows that it keeps and writes."""
    experiment = load_experiment(PRESET, [f"seed={seed}", *changes])
    count = experiment.data.clients
    clients = TOYS[name](count, seed)
    width = clients(torch.zeros(1).long(), torch.zeros(()), 1).shape[1]
    rounds: list[Case] = []
    known: set[str] = set()
    written: set[str] = set()
    for cohort, verdict, state in judge_rounds(MAKE[name](bound), clients, experiment, width):
        infected = is_malicious(cohort, count)
        left_out = 1 - torch.as_tensor(verdict.facts.get("weights", verdict.elected)).double()
        rows = hash_rows(state)
        rounds.append(
            {
                "known": fmean(str(client) in known for client in cohort.tolist()),
                "infected_out": float(left_out[infected].mean()),
                "benign_out": float(left_out[~infected].mean()),
                "rows": len(rows),
                "new_rows": len(rows - written),
            }
        )
        known, written = set(state.defense["clients"]), rows
    means = {key: fmean(each[key] for each in rounds) for key in ("known", "infected_out", "benign_out")}
    return {**means, "clients": len(known), **{key: [each[key] for each in rounds] for key in ("rows", "new_rows")}}


def hash_rows(state: RunState) -> set[str]:
    """Return the rows of a checkpoint, each as a hash of its content."""
    tensors: dict[str, Tensor] = {}
    encode(vars(state), tensors)
    return {hash_tensor(tensor) for tensor in tensors.values()}


def compare_bounds(name: str, bound: int | None, width: int) -> Case:
    """Return the cost of a bound with the first seed, and the mean over seeds of the decisions with it."""
    runs = [count_decisions(name, bound, seed) for seed in SEEDS]
    decisions = {key: fmean(run[key] for run in runs) for key in ("known", "infected_out", "benign_out")}
    print(f"{name} {bound}: {decisions}", file=sys.stderr, flush=True)
    row, (kept, new) = 4 * width, (runs[0][key] for key in ("rows", "new_rows"))
    return {
        "name": name,
        "remember": bound,
        "clients": runs[0]["clients"],
        "checkpoint_bytes": max(kept) * row,
        "written_bytes": max(new) * row,
        "run_bytes": sum(new) * row,
        "run_bytes_whole": sum(kept) * row,
        **decisions,
    }


def time_rounds(name: str, width: int, *changes: str) -> Case:
    """Return medians over settled rounds: the defense, its checkpoint, and the same checkpoint written whole."""
    seconds: dict[str, list[float]] = {"defense": [], "changed": [], "whole": []}

    def timed(kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            start = perf_counter()
            result = work(*given)
            seconds[kind].append(perf_counter() - start)
            return result

        return call

    experiment = load_experiment(PRESET, [f"rounds={TIMED_ROUNDS}", *changes])
    defense = timed("defense", MAKE[name](MAX_REMEMBERED_CLIENTS))
    with TemporaryDirectory() as folder, use_one_thread():
        for _, _, state in judge_rounds(defense, make_noise(width, 1), experiment, width):
            timed("changed", save_state)(state, Path(folder) / "changed")
            timed("whole", save_whole)(state, Path(folder) / "whole")
    medians = {kind: median(times[SETTLED_ROUND - 1 :]) for kind, times in seconds.items()}
    return {"name": name, **medians, "ratio": medians["whole"] / medians["changed"]}


def save_whole(state: RunState, path: Path) -> None:
    """Write a checkpoint as one file."""
    write_bytes(path, pack(vars(state)))


def count_parameters() -> int:
    """Return the length of an update of the preset's model."""
    model = build_model(load_experiment(PRESET).model.name, SHAPE, CLASSES, stream(0))
    return sum(weight.numel() for weight in model.parameters())


def run() -> dict[str, Any]:
    """Count, decide and time."""
    width = count_parameters()
    cases = [compare_bounds(name, bound, width) for name in MAKE for bound in BOUNDS]
    seconds = [time_rounds(name, width) for name in MAKE]
    return {"machine": describe_machine(), "width": width, "cases": cases, "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
