"""Rehearses federations of 5, 8 and 20 sites, as operators would with `snowball rehearse`.

    python -m benchmarks.choices.rehearsals runs/rehearsals > benchmarks/results/rehearsals.json

The eight sites differ 94-fold in size. Shipped sample, quarter-size CNN, 20 rounds, one seed. Runs that the folder
holds are only read.
"""

import json
import sys
from pathlib import Path
from typing import Any

import snowball
from benchmarks.files import shorten_numbers
from benchmarks.measuring.machine import describe_machine

FEDERATIONS: dict[str, dict[str, Any]] = {
    "5": {"sites": 5, "defenses": ["snowball-plus", "median"]},
    "8": {"sizes": [60, 190, 400, 640, 900, 1300, 2600, 5640], "defenses": ["snowball-plus", "median"]},
    "20": {
        "sites": 20,
        "defenses": ["snowball-plus", "snowball"],
        "attacks": ["cba", "model-replacement"],
    },
}
"""The settings of each rehearsal; what they leave out is a rehearsal's default."""


def run(folder: Path, jobs: int | None = None) -> dict[str, Any]:
    """Rehearse every federation into a folder and return the results."""
    results = {}
    for name, settings in FEDERATIONS.items():
        result = snowball.rehearse(**settings, out=folder / name, jobs=jobs, progress=False)
        results[name] = {key: value for key, value in result.plain().items() if key != "folder"}
    return {"machine": describe_machine(), "federations": shorten_numbers(results)}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), *map(int, sys.argv[2:])), indent=1))
