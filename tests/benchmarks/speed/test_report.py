"""The benchmark of reports uses the runs that it claims to use, all of them finished."""

import sys
from pathlib import Path

from benchmarks.speed.report import measure_report
from snowball.records.rounds import RoundRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "report"))
from sweeps_made import At, make_sweep, round_of


def with_evidence(at: At, number: int) -> RoundRecord:
    made = round_of(at, number)
    return made | {"facts": {"votes": [0.125] * (1000 if at["defense.name"] == "snowball" else 4)}}


def test_the_largest_records_of_finished_runs_are_reported_on(tmp_path: Path) -> None:
    make_sweep(tmp_path, make_round=with_evidence, name="cpu/table1", title="One")
    (largest, *_) = tmp_path.glob("*-snowball-1-*")
    (largest / "summary.json").unlink()
    found = measure_report(tmp_path, most=2)
    assert found["runs"] == 2
    both = sum(file.stat().st_size for seed in (2, 3) for file in tmp_path.glob(f"*-snowball-{seed}-*/rounds.jsonl"))
    assert found["records_mb"] * 1e6 == both
    assert 0 < found["page_mb"] < 1
    assert found["seconds"] > 0
