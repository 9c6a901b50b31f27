"""Every defense in the demo's federation, against both of the paper's attacks.

    python benchmarks/compare.py runs/compare > benchmarks/results/compare.json

The settings are the `demo` preset's: 20 rounds, 100 clients of the shipped MNIST sample, 50 a round, 20 % of them
malicious, each defense as its `peers` section says, and where the published code and the original method differ, both.
Every run has a folder of its own; those that are there already go on where they stopped.
"""

import json
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from machine import describe
from snowball.defenses import DEFENSES
from snowball.records import RunFolder
from snowball.sim.experiment import load, read
from snowball.sim.run import is_finished, run

ATTACKS = ("cba", "dba")
VARIANTS = ("original", "published")
SLOW_FIRST = ("flip", "deepsight", "crfl")
"""So that nothing long is left for one process alone at the end."""


def cases() -> Iterator[tuple[str, str, str | None]]:
    """Defense, attack and variant of every run."""
    for name in sorted(DEFENSES, key=lambda name: name not in SLOW_FIRST):
        varies = "variant" in read("demo")["peers"].get(name, {})
        for attack in ATTACKS:
            yield from ((name, attack, variant) for variant in (VARIANTS if varies else (None,)))


def play(case: tuple[str, str, str | None], root: Path) -> dict[str, Any]:
    """One run, and what it amounts to."""
    torch.set_num_threads(1)
    name, attack, variant = case
    chosen = [f"defense.variant={variant}"] if variant else []
    experiment = load("demo", [f"attack.name={attack}", f"defense.name={name}", *chosen])
    path = root / "-".join(filter(None, (name, variant, attack)))
    if not is_finished(path, experiment):
        for _ in run(experiment, path, resume=True):
            pass
    folder = RunFolder.open(path)
    seconds = [record["seconds"]["defense"] for record in folder.rounds()]
    described = {"defense": name, "variant": variant, "attack": attack, "settings": experiment.defense.own}
    return {**described, **(folder.summary() or {}), "defense_seconds": sorted(seconds)[len(seconds) // 2]}


def main() -> None:
    """Run every case on two processes and print all headlines."""
    root = Path(sys.argv[1])
    with get_context("forkserver").Pool(2) as pool:
        waiting = [(case, pool.apply_async(play, (case, root))) for case in cases()]
        results = []
        for case, result in waiting:
            results.append(result.get())
            print(*case, results[-1]["last"], file=sys.stderr, flush=True)
    print(json.dumps({"machine": describe(), "runs": results}, indent=1, default=vars))


if __name__ == "__main__":
    main()
