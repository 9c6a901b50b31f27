"""Runs every attack against FedAvg and Snowball.

    python -m benchmarks.strength.attacks runs/attacks > benchmarks/results/attacks.json
    python -m benchmarks.strength.attacks runs/attacks --only a3fl iba > attacks.json

The second line runs some attacks, and takes the rows of all others from the result that there is.

The settings are those of the preset `demo`: 20 rounds, 100 clients of the shipped MNIST sample, 50 per round. 20 % of
them are malicious and attack in every round, with the attack's own defaults. `ideal` leaves all attackers out, so its
model does not depend on them: it runs once per kind of probe. Attacks that keep a memory also meet snowball-plus.
Attacks on texts run with the preset `cpu/sent140`, also for 20 rounds, with 25 instead of 50 of its 500 clients per
round.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.files import read_result
from benchmarks.strength.runs import Case, run_cases
from snowball.attacks import ATTACKS

LEARNED = ("a3fl", "cerp", "iba")
"""Attacks that learn their trigger."""

REMEMBERING = (*LEARNED, "3dfed")
"""Attacks that keep a memory from round to round."""

PROBES = ("cba", "blended", "edge-case", "label-flip", *LEARNED)
"""Attacks with different probes; the others probe as the first does, or not at all."""

TEXTS = ("text", "sdba")
SMALLER = ("cohort=25",)
"""Half of the clients per round of cpu/sent140."""


def list_cases() -> Iterator[Case]:
    """Yield every run."""
    for attack in ATTACKS:
        changed = ("attack.poison_ratio=1.0",) if attack == "label-flip" else ()  # its default, not the preset's
        more = (*(("snowball-plus",) if attack in REMEMBERING else ()), *(("ideal",) if attack in PROBES else ()))
        for defense in ("fedavg", "snowball", *more):
            assignments = (f"attack.name={attack}", f"defense.name={defense}", *changed)
            preset, smaller = ("cpu/sent140", SMALLER) if attack in TEXTS else ("demo", ())
            yield Case(preset, (*assignments, *smaller), {"attack": attack, "defense": defense})


def main() -> None:
    """Run all attacks, or some of them, and print the results of all."""
    parser = argparse.ArgumentParser(description="Run attacks against FedAvg and Snowball.")
    parser.add_argument("folder", type=Path, help="folder of the runs, where they resume")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, help="run these; the others' rows stay as they are")
    options = parser.parse_args()
    cases = [case for case in list_cases() if case.labels["attack"] in (options.only or ATTACKS)]
    stored = read_result("attacks")["runs"] if options.only else []
    run_cases(cases, options.folder, [run for run in stored if run["attack"] not in options.only])


if __name__ == "__main__":
    main()
