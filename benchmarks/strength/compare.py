"""Runs every defense in the demo's federation, against both of the paper's attacks.

    python -m benchmarks.strength.compare runs/compare > benchmarks/results/compare.json
    python -m benchmarks.strength.compare runs/compare --only caf freqfed > compare.json

The second line runs some defenses, and takes the rows of all others from the result that there is.

The settings are those of the preset `demo`: 20 rounds, 100 clients of the shipped MNIST sample, 50 per round, 20 % of
them malicious. Each defense has the settings of its `peers` section; where the published code and the original method
differ, both run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.files import read_result
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


def main() -> None:
    """Run all defenses, or some of them, and print the results of all."""
    parser = argparse.ArgumentParser(description="Run defenses in the demo's federation.")
    parser.add_argument("folder", type=Path, help="folder of the runs, where they resume")
    parser.add_argument("--only", nargs="+", choices=DEFENSES, help="run these; the others' rows stay as they are")
    options = parser.parse_args()
    cases = [case for case in list_cases() if case.labels["defense"] in (options.only or DEFENSES)]
    stored = read_result("compare")["runs"] if options.only else []
    run_cases(cases, options.folder, [run for run in stored if run["defense"] not in options.only])


if __name__ == "__main__":
    main()
