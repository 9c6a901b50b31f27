"""Results as data: what is collected, merged and refused."""

import csv
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps_made import make_sweep, stopping_round_of

from snowball.errors import RunError
from snowball.report.results import (
    FIELDS,
    Result,
    collect_results,
    format_results,
    merge_results,
    parse_results,
    read_results,
    write_results,
)
from snowball.report.runs import find_runs

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def results(tmp_path: Path) -> list[Result]:
    make_sweep(tmp_path / "sweep", {"defense.name": ["krum", "snowball"], "seed": [1]})
    return collect_results(find_runs([tmp_path / "sweep"]), [])


def change(result: Result, **texts: str) -> Result:
    return Result({**result.texts, **texts}, result.metrics)


def test_a_row_has_settings_metrics_and_times(results: list[Result]) -> None:
    krum, snowball = results
    assert [result.texts["defense.name"] for result in results] == ["krum", "snowball"]
    assert krum.texts["run"].endswith(krum.texts["settings_hash"])
    assert json.loads(krum.texts["settings"])["defense"] == {"name": "krum"}
    assert snowball.metrics["last_backdoor_accuracy"] == pytest.approx(0.003)
    assert snowball.metrics["defense_seconds"] == pytest.approx(0.2)


def test_how_a_backdoor_fades_is_in_the_row(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"defense.name": ["krum"], "seed": [1], "rounds": [13]}, stopping_round_of)
    (result,) = collect_results(find_runs([tmp_path]), [])
    assert result.metrics["stop_backdoor_accuracy"] == pytest.approx(0.9)
    assert result.metrics["later_backdoor_accuracy"] == pytest.approx(0.9 * (2 / 3) ** 10)
    assert result.metrics["half_rounds"] == 2  # 0.6, then 0.4, which is below 0.45
    assert list(parse_results(format_results([result]), "here")) == [result]


def test_what_is_written_is_read_again(results: list[Result], tmp_path: Path) -> None:
    write_results(results, tmp_path / "results.csv")
    assert read_results(tmp_path / "results.csv") == results
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        assert next(csv.reader(file)) == list(FIELDS)


def test_a_run_that_is_not_finished_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"defense.name": ["krum", "snowball", "ideal"], "seed": [1]})
    ideal, krum, _ = find_runs([tmp_path])
    (ideal.path / "summary.json").unlink()
    (krum.path / "summary.json").write_text("{}", encoding="utf-8")
    faults: list[str] = []
    assert len(collect_results(find_runs([tmp_path]), faults)) == 1
    assert len(faults) == 1
    assert krum.path.name in faults[0]


def test_a_folders_name_cannot_become_a_formula(tmp_path: Path) -> None:
    make_sweep(tmp_path, {"defense.name": ["krum"], "seed": [1]})
    (run,) = find_runs([tmp_path])
    run.path.rename(tmp_path / "=cmd|'x'")
    (moved,) = find_runs([tmp_path])
    (result,) = collect_results([moved], [])
    assert result.texts["run"] == "_cmd__x_"
    assert list(parse_results(format_results([result]), "here")) == [result]


def test_a_measurement_that_is_in_two_files_stays_once(results: list[Result]) -> None:
    krum, snowball = results
    assert merge_results([snowball, krum, snowball]) == [krum, snowball]


def test_results_of_two_machines_both_stay(results: list[Result]) -> None:
    krum, _ = results
    other = Result({**krum.texts, "machine": '{"processor": "GPU"}'}, {**krum.metrics, "main_accuracy": 0.5})
    assert merge_results([krum, other]) == merge_results([other, krum])
    assert len(merge_results([krum, other])) == 2


def test_contradictory_results_of_one_machine_are_refused(results: list[Result]) -> None:
    krum, _ = results
    other = Result(krum.texts, {**krum.metrics, "main_accuracy": 0.5})
    with pytest.raises(RunError, match="measured twice on the same machine and commit, and its main_accuracy is"):
        merge_results([krum, other])
    slower = Result(krum.texts, {**krum.metrics, "defense_seconds": 9.0})
    assert merge_results([krum, slower]) == [krum]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "snowball-results/2", "this version reads snowball-results/1"),
        ("settings_hash", "00000000", "says settings_hash = '00000000', and its settings say"),
        ("settings", '{"rounds": 4}', "and its settings say"),
        ("settings", "[]", "has no JSON object in settings"),
        ("settings", "{", "settings in line 2 of here"),
        ("defense.name", "ideal", "says defense.name = 'ideal', and its settings say 'krum'"),
        ("run", "=1+1", "characters that no run has"),
        ("commit", "\x1b[2J", "characters that no commit has"),
        ("main_accuracy", "1.5", "a number from 0 to 1 was expected"),
        ("main_accuracy", "nan", "a number from 0 to 1 was expected"),
        ("defense_seconds", "-1", "was expected"),
        ("half_rounds", "1e10", "a number from 0 to 1000000000 was expected"),
    ],
)
def test_a_changed_row_is_refused(field: str, value: str, message: str, results: list[Result]) -> None:
    text = format_results([results[0]])
    (row,) = csv.DictReader(text.splitlines())
    row[field] = value
    line = format_results([Result({name: row[name] for name in FIELDS if name in results[0].texts}, {})])
    changed = dict(zip(FIELDS, next(csv.reader(line.splitlines()[1:])), strict=True)) | row
    header = ",".join(FIELDS)
    cells = ",".join('"' + changed[name].replace('"', '""') + '"' for name in FIELDS)
    with pytest.raises(RunError, match=message):
        list(parse_results(f"{header}\n{cells}\n", "here"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its columns are not those of snowball-results/1"),
        ("a,b\n1,2\n", "its columns are not those"),
        (",".join(FIELDS) + "\n1,2\n", "line 2 of here has more or fewer cells than columns"),
        (",".join(FIELDS) + '\n"' + "x" * (1 << 21) + '"\n', "field larger than field limit"),
    ],
)
def test_another_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        list(parse_results(text, "here"))


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    for content in (text, ",".join(FIELDS) + "\n" + text):
        with suppress(RunError):
            assert list(parse_results(content, "here")) == []


def test_the_command_collects_and_merges(results: list[Result], tmp_path: Path, call: Call) -> None:
    first, both = tmp_path / "first.csv", tmp_path / "both.csv"
    assert call("results", "collect", tmp_path / "sweep", "--out", first) == (0, f"2 results are in {first}.\n", "")
    assert call("results", "merge", first, first, "--out", both)[0] == 0
    assert both.read_text(encoding="utf-8") == first.read_text(encoding="utf-8") == format_results(results)
    code, _, errors = call("results", "merge", tmp_path / "none.csv", "--out", both)
    assert code == 2
    assert "none.csv" in errors
