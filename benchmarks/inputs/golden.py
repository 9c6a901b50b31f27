"""Writes tests/golden/rounds.safetensors: a few real rounds, and the clients that the plain method elects in them.

    python -m benchmarks.inputs.rounds FOLDER && python -m benchmarks.inputs.golden FOLDER

Votes and elected clients come from `baselines/reference.py`, which shares no code with the package: scikit-learn,
voter by voter.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.baselines.reference import elect_bottom_up
from benchmarks.files import GOLDEN
from benchmarks.inputs.rounds import WORLDS, read_rounds

CLUSTERS = 11
CHOSEN = {"mnist-cba": (1, 6, 20), "mnist-k20-4-s1": (1, 12), "fashion-cba": (9,), "mnist-paper": (4,)}


def main(folder: Path) -> None:
    """Choose the rounds, judge them with the plain method, and store both."""
    kept: dict[str, torch.Tensor] = {}
    for world, numbers in CHOSEN.items():
        for taken in read_rounds(folder / f"{world}.safetensors"):
            if taken.number not in numbers:
                continue
            updates, prefix = taken.updates, f"{world}/{taken.number}"
            layers = [updates.values[:, columns].numpy() for columns in updates.layout.columns.values()]
            votes = elect_bottom_up(layers, CLUSTERS)
            kept[f"{prefix}/infected"] = taken.infected
            kept[f"{prefix}/votes"] = torch.from_numpy(votes.totals)
            for name, shape in zip(updates.layout.names, updates.layout.shapes, strict=True):
                rows = updates.values[:, updates.layout.columns[name]]
                kept[f"{prefix}/layer/{name}"] = rows.reshape(-1, *shape).contiguous()
    described = {world: repr(WORLDS[world]) for world in CHOSEN}
    save_file(kept, GOLDEN, metadata={"clusters": str(CLUSTERS), "made by": "benchmarks/inputs/golden.py", **described})
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
