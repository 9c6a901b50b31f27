"""Check an implementation of Snowball against the vectors beside this file: `python check.py YOUR_MODULE`.

README.md says which functions the module may define, what they take and what they return. Needs NumPy alone.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

TOLERANCE = 1e-5
"""Largest difference, as a share of the largest expected number: float32 passes."""

CHECKS = {
    "count_votes": lambda count, case: (count(list(case["layers"].values()), case["clusters"]), case["totals"]),
    "choose_selectees": lambda choose, case: (sorted(choose(case["totals"], case["count"])), case["selectees"]),
    "choose_joining": lambda choose, case: (sorted(choose(case["scores"], case["wanted"])), case["joining"]),
    "compute_loss": lambda compute, case: (compute(case["weights"], case["inputs"], case["noise"]), case["loss"]),
    "compute_errors": lambda compute, case: (
        compute(case["weights"], case["differences"], case["noise"]),
        case["errors"],
    ),
}


def read_vector(path):
    """Read a vector with its lists as arrays."""

    def convert(found):
        return {name: np.array(each) if isinstance(each, list) else each for name, each in found.items()}

    return json.loads(path.read_text(encoding="utf-8"), object_hook=convert)


def measure_difference(ours, expected):
    """Return the largest difference as a share of the largest expected number; infinite for other shapes."""
    ours, expected = np.asarray(ours, float), np.asarray(expected, float)
    return np.abs(ours - expected).max() / np.abs(expected).max() if ours.shape == expected.shape else np.inf


def main(name):
    """Print a line per vector that the module has the function for; return 1 if one differs or none was checked."""
    module, passed = importlib.import_module(name), []
    for path in sorted((Path(__file__).parent / "vectors").glob("*.json")):
        case = read_vector(path)
        if hasattr(module, case["function"]):
            off = measure_difference(*CHECKS[case["function"]](getattr(module, case["function"]), case))
            passed.append(bool(off <= TOLERANCE))
            print(f"{'ok     ' if passed[-1] else 'DIFFERS'} {path.stem}: {case['function']}, off by {off:.1e}")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.path.insert(0, ".")
    if len(sys.argv) != 2 or not importlib.util.find_spec(sys.argv[1]):
        print("usage: python check.py YOUR_MODULE, a module that can be imported here", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
