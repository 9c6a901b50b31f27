"""The acceptance run through NVFlare gives the same as a plain loop."""

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVFlare's simulator needs nvflare >= 2.9: `make test-nvflare` has it")

from benchmarks.operators.cases import Case
from benchmarks.operators.record import record_run
from benchmarks.operators.ways import run_loop, run_through_nvflare

CASE = Case("scaled-backdoor", 1, 3, 2, "snowball-plus")


@pytest.mark.slow
def test_a_run_through_nvflare_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    with run_through_nvflare() as run:
        nvflare = record_run(run, CASE, "nvflare", tmp_path / "nvflare")
    direct = record_run(run_loop, CASE, "direct", tmp_path / "direct")
    for part in ("hostile", "left_out", "suspects", "dropped", "silent", "outcomes"):
        assert nvflare[part] == direct[part]
    for accuracy in ("main_accuracy", "backdoor_accuracy"):  # sums in another order
        assert nvflare[accuracy] == pytest.approx(direct[accuracy], abs=0.005)
