"""The example app can be published: Flower builds a bundle of format 1 from it, with the licence inside."""

import subprocess
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("flwr", reason="flwr builds the bundle: `make test-flower` has it")

from flower_processes import BIN, QUIET
from readme_commands import find_command

ROOT = Path(__file__).parents[3]
APP = ROOT / "examples" / "flower"
PROJECT = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_command_of_the_readme_builds_a_bundle_with_the_licence(tmp_path: Path) -> None:
    program, *words = find_command(APP / "README.md", "flwr build")
    command = [BIN / program, *words[:-1], ROOT / words[-1]]
    environment = {**QUIET, "FLWR_HOME": str(tmp_path / "home"), "PATH": str(BIN)}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=120)
    (bundle,) = tmp_path.glob("*.fab")
    with ZipFile(bundle) as content:
        names = set(content.namelist())
        assert content.read("LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert {"README.md", "pyproject.toml", ".info/CONTENT"} <= names
    assert {f"guarded/{name}.py" for name in ("__init__", "client_app", "server_app", "task")} <= names


def test_the_bundle_is_of_format_1_for_the_version_that_tests_use() -> None:
    app = PROJECT["tool"]["flwr"]["app"]
    pins = (ROOT / "constraints-flower.txt").read_text(encoding="utf-8").splitlines()
    assert app["fab-format-version"] == 1
    assert f"flwr=={app['flwr-version-target']}" in pins
    assert len(PROJECT["project"]["description"]) <= 200  # Flower's hub asks again above
