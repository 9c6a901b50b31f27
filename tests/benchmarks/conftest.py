"""The benchmarks are programs beside the package, not part of it: tests import them from their folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
