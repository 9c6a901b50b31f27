from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from snowball.errors import RunError
from snowball.records.files import read_json, write_json
from snowball.records.run import RunFolder
from snowball.report import HEADERS, build_rows, find_runs, format_rows
from snowball.report.runs import format_duration

Make = Callable[..., RunFolder]


def test_a_row_holds_the_summary(two_runs: list[RunFolder]) -> None:
    row, summary = build_rows(two_runs)[1], two_runs[1].read_summary()
    assert summary is not None
    assert summary.best is not None
    assert summary.last is not None
    assert (row.name, row.defense, row.rounds, row.finished) == ("snowball", "snowball", 20, True)
    best = {
        "round": row.best_round,
        "main_accuracy": row.best_main_accuracy,
        "backdoor_accuracy": row.best_backdoor_accuracy,
    }
    assert best == asdict(summary.best)
    assert row.last_backdoor_accuracy == summary.last.backdoor_accuracy
    assert row.false_positive_rate == summary.false_positive_rate == 1 / 200
    assert row.seconds == pytest.approx(sum(summary.seconds.values()))


def test_a_defense_is_named_with_the_mixings_before_it(tmp_path: Path) -> None:
    befores = ([{"name": "arc"}, {"name": "nnm", "tolerate": 2}], [], [3, {"name": 4}], "nnm")
    settings = [{"defense": {"name": "fedavg", "before": before}} for before in befores]
    runs = [RunFolder.create(tmp_path / str(number), {"settings": own}) for number, own in enumerate(settings)]
    assert [row.defense for row in build_rows(runs)] == ["fedavg, arc, nnm", "fedavg", "fedavg", "fedavg"]


def test_parts_of_a_stage_are_not_counted_twice(make_run: Make, tmp_path: Path) -> None:
    seconds = {"train": 1, "defense": 2, "evaluate": 3, "defense.gram": 1.9}
    assert build_rows([make_run(tmp_path / "a", "fedavg", rounds=2, seconds=seconds)])[0].seconds == 12


def test_the_time_in_which_an_attack_adapts_is_counted(make_run: Make, tmp_path: Path) -> None:
    seconds = {"train": 1, "defense": 2, "evaluate": 3, "attack": 4}
    assert build_rows([make_run(tmp_path / "a", "fedavg", rounds=2, seconds=seconds)])[0].seconds == 20


def test_an_unfinished_run_has_a_row(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "fedavg", rounds=3)
    (run.path / "summary.json").unlink()
    row = build_rows([run])[0]
    assert row.cells()[HEADERS.index("Rounds")] == "3, unfinished"
    assert row.last_main_accuracy is not None


def test_a_run_without_a_round_or_settings_has_a_row(tmp_path: Path) -> None:
    row = build_rows([RunFolder.create(tmp_path / "a", {"settings": "odd"})])[0]
    assert row.cells() == ("a", "–", "0, unfinished", *["–"] * 7, "0.0 s")  # noqa: RUF001


def test_a_run_without_an_attack_shows_no_backdoor(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "fedavg", malicious=[False] * 50, backdoor_accuracy=None)
    row = build_rows([run])[0]
    assert (row.best_backdoor_accuracy, row.last_backdoor_accuracy, row.false_positive_rate) == (None, None, None)


def test_markdown_cannot_be_broken_by_a_name(make_run: Make, tmp_path: Path) -> None:
    text = format_rows(build_rows([make_run(tmp_path / "a|b\n<b>*c*", "fedavg", rounds=1)]))
    heading, ruler, row = text.splitlines()
    assert row.startswith(r"| a\|b \<b\>\*c\* | fedavg | 1 |")
    assert heading.count("|") == ruler.count("|") == row.replace(r"\|", "").count("|") == len(HEADERS) + 1


def test_runs_of_one_name_are_told_apart(make_run: Make, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / seed / "krum", "fedavg", rounds=1) for seed in ("1", "2")]
    assert [row.name for row in build_rows(runs)] == ["1/krum", "2/krum"]


def test_runs_are_found_at_any_depth_and_once(make_run: Make, tmp_path: Path) -> None:
    for name in ("b", "a/deep", "a"):
        make_run(tmp_path / "sweep" / name, "fedavg", rounds=1)
    make_run(tmp_path / "other", "fedavg", rounds=1)
    found = find_runs([tmp_path / "other", tmp_path / "sweep", tmp_path / "other"])
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == [
        "other",
        "sweep/a",
        "sweep/a/deep",
        "sweep/b",
    ]


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_no_run_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=f"there is no run in .*{name}"):
        find_runs([tmp_path / name])


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (110, "110 s"), (1500, "25 min"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_a_summary_of_dropped_clients_that_cannot_be_is_made_anew(make_run: Make, tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", "fedavg", rounds=2, dropped={"client-7": "not-finite"}, kept="too few")
    row = build_rows([run])[0]
    assert (row.dropped, row.kept) == ({"client-7": {"not-finite": 2}}, [1, 2])
    summary = read_json(run.path / "summary.json")
    for change in ({"dropped": {"client-7": 2}}, {"kept": "1"}):
        write_json(run.path / "summary.json", {**summary, **change})
        assert build_rows([run])[0] == row
