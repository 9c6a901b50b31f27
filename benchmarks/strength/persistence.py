"""Runs attacks that stop, against FedAvg, and follows their backdoors through the honest rounds after that.

    python -m benchmarks.strength.persistence runs/persistence > benchmarks/results/persistence.json

The federation is that of the preset `demo`, for 20 rounds. Malicious clients attack in the first 10 and train like
everybody else in the others. Every attack has its own defaults.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring.machine import describe_machine
from benchmarks.strength.runs import Case, run_case
from snowball.records.run import RunFolder

ATTACKS = ("cba", "chameleon")
LAST_ATTACK, ROUNDS = 10, 20


def list_cases() -> Iterator[Case]:
    """Yield every run."""
    for attack in ATTACKS:
        assignments = ("defense.name=fedavg", f"attack.last_round={LAST_ATTACK}", f"rounds={ROUNDS}")
        yield Case("demo", (f"attack.name={attack}", *assignments), {"attack": attack})


def follow_backdoor(case: Case, root: Path) -> dict[str, Any]:
    """Run one case, and return its accuracies in every round."""
    run_case(case, root)
    rounds = list(RunFolder.open(root / str(case.labels["attack"])).read_rounds())
    accuracies = {name: [record[name] for record in rounds] for name in ("main_accuracy", "backdoor_accuracy")}
    return {**case.labels, "last_attack": LAST_ATTACK, **accuracies}


if __name__ == "__main__":
    runs = [follow_backdoor(case, Path(sys.argv[1])) for case in list_cases()]
    print(json.dumps({"machine": describe_machine(), "runs": runs}, indent=1))
