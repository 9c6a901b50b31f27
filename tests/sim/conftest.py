import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.sim.experiment import CHOICES, Experiment
from snowball.sim.settings import override

sys.path.insert(0, str(Path(__file__).parent))

SETTINGS = {
    "seed": 3,
    "rounds": 2,
    "cohort": 5,
    "data": {"name": "mnist-sample", "clients": 8, "examples": 240, "minimum": 5},
    "model": {"name": "cnn-quarter"},
    "training": {"epochs": 1},
    "attack": {"name": "cba", "malicious": 0.25},
    "defense": {"name": "snowball-minus", "clusters": 2},
}

MakeExperiment = Callable[..., Experiment]


@pytest.fixture
def tiny() -> MakeExperiment:
    """Makes an experiment of seconds; `a.b=c` assignments change it."""
    return lambda *assignments: Experiment.parse(override(SETTINGS, assignments, CHOICES))
