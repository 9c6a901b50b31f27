"""Runs every defense in the demo's federation, against both of the paper's attacks.

    python -m benchmarks.strength.compare runs/compare > benchmarks/results/compare.json

The settings are those of the preset `demo`: 20 rounds, 100 clients of the shipped MNIST sample, 50 per round, 20 % of
them malicious. Each defense has the settings of its `peers` section; where the published code and the original method
differ, both run.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.strength.runs import Case, run_cases
from snowball.defenses import DEFENSES
from snowball.sim.presets import Preset

ATTACKS = ("cba", "dba")
VARIANTS = ("original", "published")
SLOW_FIRST = ("flip", "deepsight", "crfl")
"""Defenses that start first, so that no long run is left for one process at the end."""


def list_cases() -> Iterator[Case]:
    """Yield every run."""
    for name in sorted(DEFENSES, key=lambda name: name not in SLOW_FIRST):
        varies = "variant" in Preset.read("demo").peers.get(name, {})
        for attack in ATTACKS:
            for variant in VARIANTS if varies else (None,):
                chosen = (f"defense.variant={variant}",) if variant else ()
                assignments = (f"attack.name={attack}", f"defense.name={name}", *chosen)
                yield Case("demo", assignments, {"defense": name, "variant": variant, "attack": attack})


if __name__ == "__main__":
    run_cases(list_cases(), Path(sys.argv[1]))
