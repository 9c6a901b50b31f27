"""What tests of the integrations share: makers are in files beside them, which they import by name."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowball.guard import AuditLog

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of Flower's can only be made inside a task: pretend to be the server's."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(params=["Guarded", "GuardedFedAvg"])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Either guarded strategy of Flower's, by its guard's settings."""
    from flower_made import STRATEGIES

    return STRATEGIES[request.param]


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What Flower's log says."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog
