from pathlib import Path

import pytest

from snowball.guard import AuditLog


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")
