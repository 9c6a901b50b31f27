"""Fixtures of both integrations; their tests import the modules beside this file."""

import sys
from pathlib import Path

import pytest

from snowball.guard import AuditLog

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")
