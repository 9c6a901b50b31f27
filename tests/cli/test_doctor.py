import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from snowball.cli import doctor
from snowball.cli.doctor import Finding, NotThere, check_extra, check_folder, describe_threads, list_checks, run_check
from snowball.errors import SnowballError

Usage = namedtuple("Usage", "total used free")


def find(*names: str) -> dict[str, Finding]:
    return {name: run_check(name, list_checks()[name]) for name in names}


def test_everything_is_checked_and_this_machine_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 10**12))
    findings = doctor.run_checks()
    names = [finding.name for finding in findings]
    assert {"versions", "threads", "extra flower", "mnist-sample", "sent140", "runs", "cache"} <= set(names)
    assert not [finding for finding in findings if finding.state == "BAD" or not finding.detail]
    assert "extra dev" not in names


def test_a_fault_is_found_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path / "nowhere"))
    found = find("cache", "mnist", "mnist-sample")
    assert found["cache"].state == "BAD"
    assert found["cache"].detail.endswith("Not a directory; set XDG_CACHE_HOME to another folder")
    assert found["mnist"].state == "BAD"
    assert "nowhere" in found["mnist"].detail
    assert found["mnist-sample"].state == "ok"


def test_a_data_set_is_read_and_one_that_is_not_here_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SNOWBALL_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"no archive")
    found = find("mnist", "femnist")
    assert found["mnist"].state == "BAD"
    assert "mnist.npz is corrupt" in found["mnist"].detail
    assert found["femnist"].state == "no"
    assert "try `snowball data fetch femnist`, or put femnist.npz or " in found["femnist"].detail


def test_a_folder_says_how_much_room_it_has_and_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 20 * 10**9))
    assert check_folder(tmp_path / "a" / "runs", "") == f"{tmp_path}/a/runs, 20 GB free"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 10**8))
    with pytest.raises(SnowballError, match=r"has 0\.1 GB free, under 1 GB; make room or give --out"):
        check_folder(tmp_path, "give --out")


@pytest.mark.parametrize("threads", ["64000", "0", "-1", "two", "9" * 5000, "\u00b2"])
def test_a_thread_setting_that_slows_runs_down_is_said(monkeypatch: pytest.MonkeyPatch, threads: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    with pytest.raises(SnowballError, match="cores: set it to 1, or unset it"):
        describe_threads()


def test_no_thread_setting_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert describe_threads().startswith("OMP_NUM_THREADS is not set, torch has ")


def test_an_extra_is_there_or_one_line_says_how_to_get_it() -> None:
    assert check_extra("testing", "hypothesis>=6").endswith(" for check_defense and check_attack")
    for missing in ("hypothesis>=99", "no-such-package[a]>=1"):
        with pytest.raises(
            NotThere, match=r"^not installed; to get it for the images of report --export: pip install '"
        ):
            check_extra("figures", missing)


def test_a_bug_is_not_taken_for_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        run_check("broken", lambda: str(1 / 0))
