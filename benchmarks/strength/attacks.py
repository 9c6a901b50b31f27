"""Runs every attack in the demo's federation, against FedAvg and Snowball.

    python -m benchmarks.strength.attacks runs/attacks > benchmarks/results/attacks.json

The settings are those of the preset `demo`: 20 rounds, 100 clients of the shipped MNIST sample, 50 per round. 20 % of
them are malicious and attack in every round, with the attack's own defaults. `ideal` leaves all attackers out, so its
model does not depend on them: it runs once per kind of probe. Attacks on texts are in cpu/table2.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.strength.runs import Case, run_cases
from snowball.attacks import ATTACKS

PROBES = ("cba", "blended", "edge-case", "label-flip")
"""Attacks with different probes; the others probe as the first does, or not at all."""

TEXTS = ("text",)


def list_cases() -> Iterator[Case]:
    """Yield every run."""
    for attack in (name for name in ATTACKS if name not in TEXTS):
        changed = ("attack.poison_ratio=1.0",) if attack == "label-flip" else ()  # its default, not the preset's
        for defense in ("fedavg", "snowball", *(("ideal",) if attack in PROBES else ())):
            assignments = (f"attack.name={attack}", f"defense.name={defense}", *changed)
            yield Case("demo", assignments, {"attack": attack, "defense": defense})


if __name__ == "__main__":
    run_cases(list_cases(), Path(sys.argv[1]))
