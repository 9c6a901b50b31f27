"""The demo, as a newcomer runs it."""

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from snowball.cli.runs import DEMO_DEFENSES


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_demo_shows_a_backdoor_let_in_and_kept_out(tmp_path: Path, seed: int) -> None:
    command = [Path(sys.executable).with_name("snowball"), "demo", "--out", tmp_path, "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(tmp_path / "report.html") in done.stdout
    headline = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"fedavg lost to the backdoor in round \d+; snowball and snowball-plus held\.", headline)
    assert f"<h1>{headline}</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.html").stat().st_size > 0
    fedavg, *defended = (json.loads((tmp_path / name / "summary.json").read_text()) for name in DEMO_DEFENSES)
    for moment, defense in product(("best", "last"), defended):
        assert fedavg[moment]["backdoor_accuracy"] > 0.8
        assert defense[moment]["backdoor_accuracy"] < 0.05
        assert defense[moment]["main_accuracy"] > fedavg[moment]["main_accuracy"] - 0.04
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.count("already has all of its 20 rounds") == 3
