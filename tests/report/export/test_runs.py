import csv
from io import StringIO
from pathlib import Path
from typing import Any

from snowball.records.run import RunFolder
from snowball.report import HEADERS, build_rows
from snowball.report.export.runs import format_rounds_csv, format_runs_csv, format_runs_latex, write_run_exports

ROUND: dict[str, Any] = {
    "participants": ["a", "b", "c"],
    "malicious": [True, False, False],
    "elected": [False, True, True],
    "main_accuracy": 0.5,
    "backdoor_accuracy": None,
    "false_positive_rate": 0.0,
    "false_negative_rate": 0.0,
    "seconds": {"train": 2.0, "defense": 0.125, "evaluate": 1.0},
    "facts": {},
    "map": None,
    "distances": None,
}


def make_run(path: Path, rounds: int = 2) -> RunFolder:
    settings = {"rounds": rounds, "data": {"name": "mnist"}, "attack": {"name": "cba"}, "defense": {"name": "krum"}}
    folder = RunFolder.create(path, {"settings": settings, "seed": 4})
    for number in range(1, rounds + 1):
        folder.append({**ROUND, "round": number})  # type: ignore[typeddict-item]
    folder.write_summary()
    return RunFolder.open(path)


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_runs_are_one_line_each_in_fractions_and_seconds(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "=one"), make_run(tmp_path / "two", rounds=1)]
    first, second = read_csv(format_runs_csv(folders, build_rows(folders)))
    assert first["run"] == "'=one"  # not a formula
    assert (first["data"], first["attack"], first["defense"], first["seed"]) == ("mnist", "cba", "krum", "4")
    assert (first["rounds"], first["finished"], first["seconds"]) == ("2", "true", "6.25")
    assert (first["best_main_accuracy"], first["best_backdoor_accuracy"]) == ("0.5", "")
    assert second["rounds"] == "1"


def test_rounds_are_one_line_each_and_a_broken_run_is_a_fault(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "one"), make_run(tmp_path / "two")]
    (tmp_path / "two" / "rounds.jsonl").write_text("[]\n", encoding="utf-8")
    faults: list[str] = []
    lines = read_csv(format_rounds_csv(folders, faults))
    assert [(line["run"], line["round"]) for line in lines] == [("one", "1"), ("one", "2")]
    assert (lines[0]["participants"], lines[0]["elected"], lines[0]["seconds.defense"]) == ("3", "2", "0.125")
    assert len(faults) == 1


def test_names_are_escaped_in_latex(tmp_path: Path) -> None:
    text = format_runs_latex(build_rows([make_run(tmp_path / "a_b&c")]))
    assert r"a\_b\&c & krum & 2 & " in text
    assert text.count(" & ") == 2 * (len(HEADERS) - 1)


def test_every_file_is_written(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "one")]
    files = write_run_exports(folders, tmp_path / "out", [])
    assert sorted(file.name for file in files) == ["rounds.csv", "runs.csv", "runs.md", "runs.tex"]
    assert all(file.stat().st_size > 100 for file in files)
