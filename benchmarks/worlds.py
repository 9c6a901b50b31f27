"""Every data set at a size for two cores: does the attack work, and what do Ideal and Snowball make of it?

    python benchmarks/worlds.py runs/worlds > benchmarks/results/worlds.json

The settings are those of the presets `cpu/...`, where Snowball has the paper's; it also runs with its defaults here.
Each run takes two processes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from runs import Case, one_by_one
from snowball.sim.experiment import presets

DEFENSES: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("fedavg", None): ("defense.name=fedavg",),
    ("ideal", None): ("defense.name=ideal",),
    ("snowball", "paper"): (),
    ("snowball", "defaults"): ("defense.clusters=gap", "defense.ballot_floor=0.5"),
}
"""Defense and variant, and what chooses them."""


def cases() -> Iterator[Case]:
    """Every run."""
    for preset in (name for name in presets() if name.startswith("cpu/")):
        for (defense, variant), assignments in DEFENSES.items():
            yield Case(
                preset, assignments, {"data": preset.removeprefix("cpu/"), "variant": variant, "defense": defense}
            )


if __name__ == "__main__":
    one_by_one(cases(), Path(sys.argv[1]))
