"""Captures real rounds for the other benchmarks: updates of trained clients, with the truth about who is infected.

The model advances by its benign updates alone (`ideal`), so that every election sees the same rounds. Each world has
one safetensors file with the layers that vote by default, as float32.

    python -m benchmarks.inputs.rounds FOLDER [WORLD ...]
"""

import argparse
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from snowball.defenses.snowball.layers import select_voting_layers
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.updates import Updates


@dataclass(frozen=True)
class World:
    """A federation to capture rounds from."""

    data: str
    model: str
    clients: int
    cohort: int
    rounds: tuple[int, ...]
    alpha: float = 0.5
    malicious: float = 0.2
    attack: str = "cba"
    epochs: int = 2
    examples: int | None = None
    seed: int = 1

    def settings(self) -> dict[str, object]:
        """The settings of the run that the rounds come from."""
        data = {"name": self.data, "clients": self.clients, "partition": "dirichlet-plain", "alpha": self.alpha}
        return {
            "seed": self.seed,
            "rounds": max(self.rounds),
            "cohort": self.cohort,
            "data": data | ({} if self.examples is None else {"examples": self.examples}),
            "model": {"name": self.model},
            "training": {"epochs": self.epochs},
            "attack": {"name": self.attack, "malicious": self.malicious, "poison_ratio": 0.3},
            "defense": {"name": "ideal"},
        }


EARLY = (1, 2, 4, 6, 9, 12, 16, 20)
SMALL = (1, 2, 3, 4, 6, 8, 10, 12)

WORLDS = {
    "mnist-cba": World("mnist-sample", "cnn-quarter", 100, 50, EARLY),
    "mnist-dba": World("mnist-sample", "cnn-quarter", 100, 50, EARLY, attack="dba"),
    "mnist-skewed": World("mnist-sample", "cnn-quarter", 100, 50, EARLY, alpha=0.1, malicious=0.3),
    "fashion-cba": World("fashion-mnist", "cnn-quarter", 200, 50, EARLY, examples=24_000),
    "fashion-dba": World("fashion-mnist", "cnn-quarter", 200, 50, EARLY, examples=24_000, attack="dba"),
    "mnist-paper": World("mnist", "cnn", 200, 50, (1, 2, 4, 8), epochs=5),
    **{
        f"mnist-k{sites}-{infected}-s{seed}": World(
            "mnist-sample",
            "cnn-quarter",
            sites,
            sites,
            SMALL,
            malicious=infected / sites,
            examples=120 * sites,
            seed=seed,
        )
        for sites, infected in ((4, 1), (5, 1), (6, 1), (8, 2), (10, 2), (15, 3), (20, 2), (20, 4), (30, 6))
        for seed in (1, 2, 3)
    },
}


@dataclass(frozen=True)
class Round:
    """A round's updates in the voting layers, and a mask of the infected ones."""

    number: int
    updates: Updates
    infected: torch.Tensor  # (n,) bool


def capture_rounds(experiment: Experiment, rounds: Collection[int], workers: int = 2) -> dict[str, torch.Tensor]:
    """Simulate up to the last of some rounds, and return these as flat tensors named round/what."""
    kept: dict[str, torch.Tensor] = {}

    def observe(updates: Updates, malicious: Sequence[bool], number: int) -> None:
        if number not in rounds:
            return
        for layer in select_voting_layers(updates.layout, "ends"):
            shape = updates.layout.shapes[updates.layout.names.index(layer)]
            kept[f"{number}/layer/{layer}"] = updates.read_columns(updates.layout.columns[layer]).view(-1, *shape)
        kept[f"{number}/examples"] = updates.examples.clone()
        kept[f"{number}/clients"] = torch.tensor([int(client) for client in updates.clients])
        kept[f"{number}/infected"] = torch.tensor(malicious)

    federation = Federation.build(experiment)
    for record in simulate(federation, partial(ProcessEngine, workers=workers), build_first_state(federation), observe):
        if record["round"] == max(rounds):
            break
    return kept


def parse_rounds(tensors: Mapping[str, torch.Tensor]) -> Iterator[Round]:
    """Yield the captured rounds, first to last."""
    for number in sorted({int(name.split("/")[0]) for name in tensors}):
        prefix = f"{number}/layer/"
        layers = {name.removeprefix(prefix): tensors[name] for name in sorted(tensors) if name.startswith(prefix)}
        clients = [str(client) for client in tensors[f"{number}/clients"].tolist()]
        updates = Updates.from_layers(layers, tensors[f"{number}/examples"], clients)
        infected = dict(zip(clients, tensors[f"{number}/infected"].tolist(), strict=True))
        yield Round(number, updates, torch.tensor([infected[client] for client in updates.clients]))


def read_rounds(file: Path) -> Iterator[Round]:
    """Yield the rounds of a world's file, first to last."""
    return parse_rounds(load_file(file))


def main(arguments: Sequence[str]) -> None:
    """Capture the named worlds, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=", ".join(WORLDS))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.worlds or WORLDS:
        file = options.folder / f"{name}.safetensors"
        if not file.exists():
            start = time.perf_counter()
            save_file(capture_rounds(Experiment.parse(WORLDS[name].settings()), WORLDS[name].rounds), file)
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
