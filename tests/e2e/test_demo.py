"""The newcomer's way in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_shows_a_backdoor_let_in_and_kept_out(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("snowball"), "demo", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(tmp_path / "report.html") in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 0
    last = {name: json.loads((tmp_path / name / "summary.json").read_text())["last"] for name in ("fedavg", "snowball")}
    assert min(end["main_accuracy"] for end in last.values()) > 0.9
    assert last["fedavg"]["backdoor_accuracy"] > 0.5
    assert last["snowball"]["backdoor_accuracy"] < 0.1
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.count("has all its 20 rounds already") == 2
