"""The acceptance run of operators, in a plain loop with small sites."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.operators import __main__ as program
from benchmarks.operators.cases import BEHAVIOURS, SIZES, Case, list_cases, task
from benchmarks.operators.record import is_recorded, record_run
from benchmarks.operators.report import Row, find_left_out, make_rows, print_report
from benchmarks.operators.ways import run_loop
from snowball.errors import RunError
from snowball.records.files import read_json

SMALL = (40, 40, 40, 40, 40, 40, 40, 60)


def make_case(behaviour: str = "nan", hostile: int = 2, **changes: Any) -> Case:
    return Case(behaviour, hostile, 1, 2, "snowball-plus", SMALL)._replace(**changes)


def make_record(behaviour: str = "nan", seed: int = 1, **changes: Any) -> dict[str, Any]:
    record = {
        "way": "direct",
        "behaviour": behaviour,
        "hostile": [] if behaviour == "clean" else ["site-2"],
        "seed": seed,
        "rounds": 10,
        "main_accuracy": 0.9,
        "backdoor_accuracy": 0.01,
        "left_out": {"site-2": 10},
        "dropped": {},
    }
    return record | changes


def test_there_is_one_clean_run_per_seed_and_one_run_per_number_of_hostile_sites() -> None:
    cases = list_cases([1, 2], BEHAVIOURS, [1, 2], 30, "snowball-plus")
    assert len(cases) == len(set(cases)) == 2 * (1 + 4 * 2)
    assert set(BEHAVIOURS) <= set(task.BEHAVIOURS)
    assert {case.sizes for case in cases} == {SIZES}
    assert all(len(case.draw_hostile()) == case.hostile for case in cases)


def test_seeds_draw_other_hostile_sites_and_behaviours_do_not() -> None:
    drawn = {seed: make_case(hostile=2, seed=seed).draw_hostile() for seed in range(20)}
    assert len(set(drawn.values())) > 5
    assert set().union(*drawn.values()) <= set(range(1, 9))
    assert make_case("silent").draw_hostile() == make_case("backdoor").draw_hostile() == drawn[1]
    assert set(make_case(hostile=1).draw_hostile()) < set(drawn[1])


def test_a_run_leaves_a_record_and_is_not_made_again(tmp_path: Path) -> None:
    case, folder = make_case("nan"), tmp_path / "direct"
    assert not is_recorded(folder, case)
    (folder / case.name).mkdir(parents=True)  # a run that was stopped
    (folder / case.name / "audit.jsonl").write_text("torn")
    record_run(run_loop, case, "direct", folder)
    record = read_json(folder / "nan-2-s1.json")
    hostile = [f"site-{site}" for site in case.draw_hostile()]
    assert record["hostile"] == hostile
    assert record["dropped"] == dict.fromkeys(hostile, 2)
    assert (record["outcomes"], record["silent"]) == ({"aggregated": 2}, {})
    assert 0 <= record["backdoor_accuracy"] <= 1
    assert 0.1 < record["main_accuracy"] <= 1
    assert "torch" in record["versions"]
    assert is_recorded(folder, case)
    assert not is_recorded(folder, case._replace(rounds=3))
    assert not is_recorded(folder, case._replace(defense="fedavg"))


def test_silent_sites_are_silent_and_runs_are_reproducible(tmp_path: Path) -> None:
    case = make_case("silent", hostile=1)
    records = [record_run(run_loop, case, "direct", tmp_path / name) for name in ("one", "other")]
    (hostile,) = records[0]["hostile"]
    assert records[0]["silent"] == {hostile: 2}
    for record in records:
        del record["seconds"]
    assert records[0] == records[1]


def test_a_run_with_missing_rounds_has_no_record(tmp_path: Path) -> None:
    case = make_case("clean", hostile=0)
    with pytest.raises(RunError, match="has 2 rounds, expected 3"):
        record_run(lambda _, folder: run_loop(case, folder), case._replace(rounds=3), "direct", tmp_path)
    assert not list(tmp_path.glob("*.json"))


def test_the_program_makes_the_runs_that_lack_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["operators", "direct", "--out", str(tmp_path), "--seeds", "1"])
    monkeypatch.setattr(program, "list_cases", lambda *_: [make_case("clean", hostile=0, rounds=1)])
    for missing in (1, 0):
        assert program.main() == 0
        assert f"{missing} of 1 runs to make" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"backdoor_accuracy": 0.05}, False),
        ({"main_accuracy": 0.879}, False),
        ({"main_accuracy": 0.881}, True),
        ({"left_out": {"site-1": 1, "site-2": 10}}, True),
        ({"left_out": {"site-1": 1}, "dropped": {"site-1": 1}}, False),
    ],
)
def test_a_row_says_whether_the_worst_run_keeps_every_promise(changes: dict[str, Any], holds: bool) -> None:
    clean = [make_record("clean", seed, left_out={}) for seed in (1, 2)]
    rows = make_rows([*clean, make_record(seed=1), make_record(seed=2, **changes)])
    assert [(row.behaviour, row.hostile, row.runs) for row in rows] == [("clean", 0, 2), ("nan", 1, 2)]
    assert [row.holds for row in rows] == [True, holds]


def test_hostile_sites_may_be_left_out_as_often_as_can_be() -> None:
    assert find_left_out(make_record()) == 0
    assert find_left_out(make_record(dropped={"site-3": 4})) == 0.4


def test_a_report_needs_records(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no record"):
        print_report(tmp_path, False)


@pytest.mark.parametrize(("backdoor", "code"), [(0.01, 0), (0.9, 1)])
def test_a_report_fails_if_a_promise_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backdoor: float, code: int
) -> None:
    records = [make_record("clean", left_out={}), make_record(backdoor_accuracy=backdoor)]
    (tmp_path / "direct").mkdir()
    for record in records:
        (tmp_path / "direct" / f"{record['behaviour']}.json").write_text(json.dumps(record), encoding="utf-8")
    assert print_report(tmp_path, False) == code
    assert f"| direct | nan | 1 | 1 | 90.0 | {100 * backdoor:.1f} |" in capsys.readouterr().out
    assert print_report(tmp_path, True) == code
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [Row(**row) for row in rows] == make_rows(records)
