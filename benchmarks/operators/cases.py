"""The runs to make: the consortium of the examples, what its hostile sites do, and which sites they are."""

import tomllib
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.files import ROOT
from snowball.rng import numpy_stream

EXAMPLES = ROOT / "examples"
BEHAVIOURS = ("clean", "backdoor", "scaled-backdoor", "nan", "silent")


def load_task() -> ModuleType:
    """Import the learning task that both examples have."""
    spec = spec_from_file_location("consortium_task", EXAMPLES / "nvflare" / "task.py")
    if spec is None or spec.loader is None:
        raise ImportError("examples/nvflare/task.py cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


task: Any = load_task()
CONFIG = tomllib.loads((EXAMPLES / "flower" / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"][
    "config"
]
SIZES: tuple[int, ...] = task.parse_numbers(CONFIG["sizes"])
MAX_EXAMPLES: int = CONFIG["max-examples"]


class Case(NamedTuple):
    """One run.

    Attributes:
        hostile: how many sites are hostile; the seed draws which.
    """

    behaviour: str
    hostile: int
    seed: int
    rounds: int
    defense: str
    sizes: tuple[int, ...] = SIZES

    @property
    def name(self) -> str:
        """The record's name without its ending."""
        return f"{self.behaviour}-{self.hostile}-s{self.seed}"

    def draw_hostile(self) -> tuple[int, ...]:
        """Draw the numbers of the hostile sites, from 1; one more hostile site leaves the others hostile."""
        order = numpy_stream(self.seed, "operators", "hostile").permutation(len(self.sizes)) + 1
        return tuple(sorted(map(int, order[: self.hostile])))

    def build_consortium(self) -> Any:
        """Build the sites."""
        return task.Consortium(self.sizes, self.draw_hostile(), self.behaviour, self.seed)


def list_cases(
    seeds: Iterable[int], behaviours: Iterable[str], hostile: Iterable[int], rounds: int, defense: str
) -> list[Case]:
    """List the runs, seed by seed; without hostile behaviour nobody is hostile, and there is one run."""
    listed = [
        Case(behaviour, 0 if behaviour == "clean" else number, seed, rounds, defense)
        for seed, behaviour, number in product(seeds, behaviours, hostile)
    ]
    return list(dict.fromkeys(listed))
