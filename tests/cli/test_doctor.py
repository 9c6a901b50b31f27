from pathlib import Path

import pytest

from snowball.cli.doctor import CHECKS, Finding, run_check, run_checks


def test_this_machine_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    findings = run_checks()
    assert [finding.name for finding in findings] == list(CHECKS)
    assert all(finding.passed and finding.detail for finding in findings)


def test_a_fault_is_found_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "nowhere"))
    found = {finding.name: finding for finding in run_checks()}
    assert not found["cache"].passed
    assert not found["mnist"].passed
    assert "nowhere" in found["mnist"].detail
    assert found["mnist-sample"].passed


def test_a_data_set_is_read_and_one_that_is_not_here_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"no archive")
    found = {finding.name: finding for finding in run_checks()}
    assert not found["mnist"].passed
    assert "mnist.npz is corrupt" in found["mnist"].detail
    assert found["fashion-mnist"] == Finding("fashion-mnist", True, "not on this machine")


def test_a_bug_is_not_taken_for_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        run_check("broken", lambda: str(1 / 0))
