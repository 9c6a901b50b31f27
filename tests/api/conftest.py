from pathlib import Path

import pytest

import snowball

SMALL = {"rounds": 2, "cohort": 6, "data.clients": 10, "data.examples": 400}


@pytest.fixture
def small() -> dict[str, int]:
    return dict(SMALL)


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> snowball.RunResult:
    """Return the result of a small run; tests that use it change nothing."""
    return snowball.run("demo", SMALL, out=tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
