"""The benchmark of starts ends when a program says that it has started, and weighs a page that `drift` can compare."""

import json
from pathlib import Path

import pytest

from benchmarks.speed import start
from benchmarks.speed.drift import read_ratios
from snowball.sim.engines import choice
from snowball.sim.engines.processes import ProcessEngine


def test_a_program_that_ends_before_it_says_so_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="exit code 3 too early"):
        start.time_until_ready("raise SystemExit(3)")


@pytest.mark.slow
def test_the_first_step_is_timed() -> None:
    case = start.time_first_step(quick=True)
    assert case["name"] == "start-up"
    assert 0 < case["reference_seconds"] < case["seconds"]


def test_the_first_step_is_found_in_the_package() -> None:
    assert "processes" in choice.ENGINE_MAKERS
    assert callable(ProcessEngine.train)
    assert "ENGINE_MAKERS" in start.STARTED
    assert "ProcessEngine.train = train" in start.STARTED
    compile(start.STARTED, "started", "exec")


def test_the_page_of_a_run_is_weighed(tmp_path: Path) -> None:
    page = start.weigh_page()
    assert page["rounds"] >= 100
    assert page["ratio"] == start.MAX_PAGE_BYTES / page["bytes"] > 1
    (tmp_path / "start.json").write_text(json.dumps({"cases": [page]}))
    assert read_ratios(tmp_path / "start.json") == {"page": page["ratio"]}
