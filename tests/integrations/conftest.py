"""Fixtures of both integrations; their tests import the modules in `readmes`.

This folder itself is not on the path: it holds folders that are called like packages which may be missing.
"""

import sys
from pathlib import Path

import pytest

from snowball.guard import AuditLog

sys.path.insert(0, str(Path(__file__).parent / "readmes"))


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")
