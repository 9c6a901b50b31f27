"""The acceptance run through Flower gives the same as a plain loop."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower's simulation needs flwr >= 1.41: `make test-flower` has it")

from benchmarks.operators.cases import Case
from benchmarks.operators.record import record_run
from benchmarks.operators.ways import run_loop, run_through_flower

CASE = Case("scaled-backdoor", 1, 3, 2, "snowball-plus")


@pytest.mark.slow
def test_a_run_through_flower_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    with run_through_flower() as run:
        flower = record_run(run, CASE, "flower", tmp_path / "flower")
    direct = record_run(run_loop, CASE, "direct", tmp_path / "direct")
    for part in ("hostile", "left_out", "suspects", "dropped", "silent", "outcomes"):
        assert flower[part] == direct[part]
    for accuracy in ("main_accuracy", "backdoor_accuracy"):  # sums in another order
        assert flower[accuracy] == pytest.approx(direct[accuracy], abs=0.005)
