"""The page that says how to add a defense, followed to the letter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "add-a-defense.md"
SMALL = ["data.clients=10", "cohort=6", "rounds=1", "data.examples=300", "training.epochs=1"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The page's files, and what an installation makes of its pyproject.toml."""
    for name, code in re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    entry = re.search(r'(usual-length) = "(.*)"', (tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert entry
    metadata = tmp_path / "usual_length-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: usual-length\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[snowball.defenses]\n{entry[1]} = {entry[2]}\n")
    return tmp_path


def call(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stranger_gets_the_checks_the_command_line_and_the_report(installed: Path) -> None:
    assert "1 passed" in call(installed, "pytest", "-q", "-p", "no:cacheprovider", "test_usual_length.py")
    assert "Average the updates whose length is nearest" in call(installed, "snowball", "list", "defenses")
    commands = re.findall(r"^snowball ((?:run|report) .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    run, report = (command.split() for command in commands)
    smaller = [part for setting in SMALL for part in ("--set", setting)]
    assert "of 6 elected" in call(installed, "snowball", *run, *smaller, "--workers", "2")
    call(installed, "snowball", *report)
    assert "usual-length" in (installed / "runs" / "usual.html").read_text(encoding="utf-8")


def test_a_stranger_cannot_take_the_name_of_a_defense(installed: Path) -> None:
    entries = installed / "usual_length-0.1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text().replace("usual-length =", "ideal ="))
    assert "Average the updates of benign clients" in call(installed, "snowball", "list", "defenses")
