"""Fixtures of the Flower tests, which import the modules beside them."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be the server's task: Flower makes messages only inside a task."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(params=["Guarded", "GuardedFedAvg"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return each guarded strategy's constructor, which takes the guard's settings."""
    from flower_federation import STRATEGIES

    return STRATEGIES[request.param]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Capture Flower's log."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog
