"""Every attack in the demo's federation, against FedAvg and Snowball.

    python -m benchmarks.strength.attacks runs/attacks > benchmarks/results/attacks.json

The settings are the `demo` preset's: 20 rounds, 100 clients of the shipped MNIST sample, 50 a round, 20 % of them
malicious, who attack in every round with the attack's own defaults. `ideal` leaves all attackers out, so that its model
is the same whatever they do: it is run once for each way to probe. Attacks on texts are in cpu/table2.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.strength.runs import Case, run_cases
from snowball.attacks import ATTACKS

PROBES = ("cba", "blended", "edge-case", "label-flip")
"""Attacks that probe in different ways; the others probe as the first does, or not at all."""

TEXTS = ("text",)


def list_cases() -> Iterator[Case]:
    """Every run."""
    for attack in (name for name in ATTACKS if name not in TEXTS):
        changed = ("attack.poison_ratio=1.0",) if attack == "label-flip" else ()  # its default, not the preset's
        for defense in ("fedavg", "snowball", *(("ideal",) if attack in PROBES else ())):
            assignments = (f"attack.name={attack}", f"defense.name={defense}", *changed)
            yield Case("demo", assignments, {"attack": attack, "defense": defense})


if __name__ == "__main__":
    run_cases(list_cases(), Path(sys.argv[1]))
