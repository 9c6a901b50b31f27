import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from snowball.data import Dataset, load_dataset
from snowball.settings import apply_assignments
from snowball.sim.experiment import CHOICES, Experiment
from snowball.updates import Updates

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background jobs and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", deadline=None)  # a slow test on a busy machine is not a failure
settings.load_profile("untimed")


@dataclass(frozen=True)
class WorkedExample:
    """Ten updates in two layers, the last three infected, with the votes of four clusters worked out by hand."""

    first: np.ndarray[Any, Any]
    last: np.ndarray[Any, Any]
    totals: list[float]

    @property
    def updates(self) -> Updates:
        """The same rows as the package's updates, in layers `first` and `last`."""
        layers = {"first": self.first, "last": self.last}
        return Updates.from_layers({name: torch.tensor(rows)[:, None].float() for name, rows in layers.items()})


@pytest.fixture
def worked() -> WorkedExample:
    x = [-1.9, 1.2, 1.3, -0.1, 1.4, 0.1, 1.4, 2.7, 2.9, 2.4]
    y = [-3, 1.6, -0.4, -0.3, 0.9, 0.7, 0.4, 1, 0.5, 1]
    last = [-1.03, 0.41, -0.83, 0.79, 0.92, 0.37, -1.21, 1.44, 2.63, 1.98]
    totals = [3, 5.4817, 7.3533, 4.7894, 5.4817, 4.1554, 7.5045, 2.9326, 2.5493, 2.5493]
    return WorkedExample(np.column_stack([x, y]), np.array(last)[:, None], totals)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that calls the command line and returns exit code, output and errors."""
    from snowball import cli  # its import warns with the typer version that Flower installs

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["snowball", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return run


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
    """Return a function that makes an experiment of a few seconds; `a.b=c` assignments change it."""
    return lambda *assignments: Experiment.parse(apply_assignments(SETTINGS, assignments, CHOICES))


@cache
def load_few_digits() -> Dataset:
    """Load the shipped digits with a tenth of their test samples."""
    digits = load_dataset("mnist-sample")
    return replace(digits, test=digits.test[torch.arange(0, len(digits.test), 10)])


@pytest.fixture
def few_test_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read the shipped digits once, and test models on a tenth of them; workers still test on all."""

    def load(name: str, tokeniser: str) -> Dataset:
        return load_few_digits() if name == "mnist-sample" else load_dataset(name, tokeniser)

    monkeypatch.setattr("snowball.sim.federation.load_dataset", load)
