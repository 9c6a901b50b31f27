from pathlib import Path

import pytest

from snowball.sim.doctor import CHECKS, checked, examine


def test_this_machine_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    findings = examine()
    assert [finding.name for finding in findings] == list(CHECKS)
    assert all(finding.fine and finding.detail for finding in findings)


def test_a_fault_is_found_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "nowhere"))
    found = {finding.name: finding for finding in examine()}
    assert not found["cache"].fine
    assert not found["data sets"].fine
    assert "nowhere" in found["data sets"].detail
    assert found["sample"].fine


def test_a_bug_is_not_taken_for_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        checked("broken", lambda: str(1 / 0))
