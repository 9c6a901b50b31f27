"""`snowball.sweep`: a list of overrides or a grid in, one row per run out."""

import sys
from pathlib import Path
from typing import Any

import pytest

import snowball
from snowball import api
from snowball.errors import RunError, SettingError
from snowball.sweeps.progress import Estimate

GRID = """# Two defenses, small
[[grid]]
preset = "demo"
set = { rounds = 1, cohort = 6, "data.clients" = 10, "data.examples" = 400 }
[grid.axes]
"defense.name" = ["fedavg", "median"]
"""

NUMBERS = ["backdoor_accuracy", "main_accuracy", "last_backdoor_accuracy", "last_main_accuracy"]


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read rows as plain records."""
    monkeypatch.setitem(sys.modules, "pandas", None)


@pytest.fixture
def short(small: dict[str, int]) -> Any:
    return snowball.load_experiment("demo", small | {"rounds": 1})


def test_a_list_of_overrides_gives_one_row_per_run_and_continues(tmp_path: Path, short: Any) -> None:
    overrides = [{"defense.name": "fedavg"}, {"defense.name": "trimmed-mean", "defense.trim": 0.1}]
    rows = snowball.sweep(overrides, preset=short, seeds=range(1, 3), out=tmp_path, jobs=2)
    assert [(row["defense.name"], row["seed"], row["defense.trim"]) for row in rows] == [
        ("fedavg", 1, None),
        ("fedavg", 2, None),
        ("trimmed-mean", 1, 0.1),
        ("trimmed-mean", 2, 0.1),
    ]
    assert [*rows[0]][3:7] == NUMBERS
    assert {row["failed"] for row in rows} == {None}
    summary = snowball.RunResult(rows[0]["folder"]).summary
    assert summary.last is not None
    assert rows[0]["last_main_accuracy"] == summary.last.main_accuracy
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/run.json")}
    more = snowball.sweep([*overrides, {"defense.name": "median"}], preset=short, seeds=[1, 2], out=tmp_path, jobs=2)
    assert more[:4] == rows
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_run_and_a_sweep_share_their_folders(in_tmp: Path, short: Any) -> None:
    result = snowball.run(short, {"defense.name": "median"})
    rows = snowball.sweep([{"defense.name": "median"}], preset=short, jobs=1)
    assert [row["folder"] for row in rows] == [str(result.folder)]


def test_the_same_run_appears_once(tmp_path: Path, short: Any) -> None:
    rows = snowball.sweep([{}, {"defense.name": "fedavg"}, {"seed": 1}], preset=short, out=tmp_path, jobs=1)
    assert [(row["defense.name"], row["seed"]) for row in rows] == [("fedavg", 1)]


def test_a_run_that_fails_has_a_row_with_the_reason(tmp_path: Path, short: Any) -> None:
    overrides = [{"training.lr": 0.01}, {"training.lr": 1e30}]
    rows = snowball.sweep(overrides, preset=short, out=tmp_path, jobs=2)
    assert rows[0]["failed"] is None
    assert rows[1]["failed"].startswith("training diverged in round 1: ")
    assert rows[1]["main_accuracy"] is None
    assert snowball.sweep(overrides, preset=short, out=tmp_path, jobs=2) == rows


def test_a_grid_s_file_gives_rows_too(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID, encoding="utf-8")
    rows = snowball.sweep(grid, out=tmp_path / "runs", jobs=1)
    assert [row["defense.name"] for row in rows] == ["fedavg", "median"]
    page = snowball.report([tmp_path / "runs"], tmp_path / "report.html")
    assert "median" in page.read_text(encoding="utf-8")


def test_the_report_shows_a_list_of_overrides(tmp_path: Path, short: Any) -> None:
    snowball.sweep([{"defense.name": "fedavg"}, {"defense.name": "median"}], preset=short, out=tmp_path, jobs=2)
    page = snowball.report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Runs of experiment" in page


def test_an_interrupted_sweep_continues(tmp_path: Path, short: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Estimate, event: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(api.Estimate, "update", interrupt)
        with pytest.raises(KeyboardInterrupt) as stopped:
            snowball.sweep([{}], preset=short, out=tmp_path, jobs=1)
    assert stopped.value.__notes__ == [f"The rounds so far are in {tmp_path}: the same call continues after them."]
    assert not (tmp_path / "failed.json").exists()
    assert snowball.sweep([{}], preset=short, out=tmp_path, jobs=1)[0]["failed"] is None


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        ([], {"preset": "demo"}, "there is nothing to run: give at least one override; {} is the preset as it is"),
        ([{}], {}, "a list of overrides needs the preset that they change, such as preset='demo'"),
        ({}, {"preset": "demo"}, "expected a list of overrides, the name of a grid or a grid's file, got {}"),
        (3, {"preset": "demo"}, "expected a list of overrides, the name of a grid or a grid's file, got 3"),
        (
            ["seed=1"],
            {"preset": "demo"},
            "each override must be a mapping, such as {'defense.name': 'krum'}, got 'seed=1'",
        ),
        ([{"defense.nam": 1}], {"preset": "demo"}, "defense.nam is not a setting of fedavg; did you mean 'name'?"),
        ([{}], {"preset": "dmeo"}, "'dmeo' is neither a preset nor a file; did you mean 'demo'?"),
        ([{}], {"preset": 5}, "expected a preset's name, a TOML file or an experiment, got 5"),
        (
            [{"seed": 1}],
            {"preset": "demo", "seeds": [2]},
            "an override sets seed = 1, and seeds are given too: leave one out",
        ),
        ([{}], {"preset": "demo", "seeds": 3}, "seeds must be a list of whole numbers, such as [1, 2, 3], got 3"),
        ([{}], {"preset": "demo", "seeds": []}, "seeds must be a list of whole numbers, such as [1, 2, 3], got []"),
        ([{}], {"preset": "demo", "seeds": ["a"]}, 'seed = "a" should be a valid integer'),
        ([{}] * 10_001, {"preset": "demo"}, "demo has 10,001 runs; the maximum is 10,000"),
        ([{}], {"preset": "demo", "jobs": 0}, "jobs must be a whole number from 1, got 0"),
        ("cpu/tabel1", {}, "'cpu/tabel1' is neither a grid nor a file; did you mean 'cpu/table1'?"),
        (
            "cpu/table1",
            {"seeds": [1]},
            "preset and seeds go with a list of overrides: the grid 'cpu/table1' has its own",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_there_is_a_folder(
    in_tmp: Path, source: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError) as refused:
        snowball.sweep(source, **options)
    assert str(refused.value) == sentence
    assert list(in_tmp.iterdir()) == []


def test_a_preset_that_extends_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "mine.toml"\n', encoding="utf-8")
    with pytest.raises(SettingError, match="extends itself"):
        snowball.sweep([{}], preset=tmp_path / "mine.toml", out=tmp_path / "runs")


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, short: Any) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="cannot be used"):
        snowball.sweep([{}], preset=short, out=tmp_path / "file")
