"""`snowball report` on folders of sweeps."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sweeps_made import AXES, make_run, make_sweep, run_name

from snowball.cli import reports

Call = Callable[..., tuple[int, str, str]]
FIRST = {path: values[0] for path, values in AXES.items()}


def cells(output: str, row: str) -> list[str]:
    """What stands behind a row's name."""
    lines = [[part.strip() for part in line.split("│")[1:-1]] for line in output.splitlines()]
    return next(line[1:] for line in lines if line[:1] == [row])


def test_paper_shows_the_tables_of_sweeps_beside_the_published_numbers(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, published="label-skew", there=lambda at: (at["defense.name"], at["seed"]) != ("krum", 2))
    code, output, errors = call("report", tmp_path, "--paper")
    assert (code, errors) == (0, "")
    assert "cpu/table1: A made-up table\n" in output
    assert cells(output, "snowball") == ["0.4 ± 0.1 (0.21)", "82.0 ± 1.0 (98.72)"]
    assert cells(output, "krum") == ["60.2 ± 0.1 (99.98) [2 of 3]", "82.0 ± 1.4 (98.71)"]
    assert "the published number in brackets" in output
    assert "Best round" not in output


def test_without_paper_runs_are_listed_and_tables_have_no_published_numbers(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, published="label-skew")
    code, output, errors = call("report", tmp_path)
    assert (code, errors) == (0, "")
    assert cells(output, run_name(FIRST))[:2] == ["ideal", "3"]
    assert cells(output, "snowball") == ["0.4 ± 0.1", "82.0 ± 1.0"]
    assert "published" not in output


def test_several_folders_are_shown_one_after_the_other(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path / "a", {"seed": [1]}, name="first", title="Of a")
    make_sweep(tmp_path / "b", {"seed": [1]}, name="second", title="Of b")
    _, output, _ = call("report", tmp_path / "b", tmp_path / "a", "--paper")
    assert 0 < output.index("second: Of b") < output.index("first: Of a")


def test_faults_are_said_beside_and_the_rest_is_reported(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path)
    (tmp_path / "sweeps" / "odd.json").write_text("{")
    (tmp_path / run_name(FIRST) / "run.json").write_text('{"settings')
    second = run_name({**FIRST, "seed": 2})
    (tmp_path / second / "summary.json").unlink()
    third = {**FIRST, "defense.name": "krum", "seed": 3}
    (tmp_path / run_name(third) / "summary.json").unlink()
    (tmp_path / "failed.json").write_text(json.dumps({run_name(third): "no\x1b[2J memory"}))
    code, output, errors = call("report", tmp_path, "--paper")
    assert code == 0
    assert cells(output, "ideal")[0].endswith("[1 of 3]")
    assert cells(output, "krum")[0].endswith("[2 of 3, 1 failed]")
    sentences = errors.splitlines()
    assert len(sentences) == 4
    assert all(sentence.startswith(f"snowball: {tmp_path}") for sentence in sentences)
    assert "odd.json is not valid JSON" in sentences[0]
    assert "run.json is not valid JSON" in sentences[1]
    assert f"{second} is not finished" in sentences[2]
    assert sentences[3].endswith(r" failed: no\x1b[2J memory")
    code, output, errors = call("report", tmp_path)
    assert code == 0
    assert cells(output, second)[1] == "3, unfinished"
    assert len(errors.splitlines()) == 4  # though the run is looked at twice


def test_a_run_with_torn_rounds_is_left_out_of_the_list(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path)
    folder = tmp_path / run_name(FIRST)
    (folder / "summary.json").unlink()
    (folder / "rounds.jsonl").write_text('{"round": 1, "par\n{}\n')
    code, output, errors = call("report", tmp_path)
    assert code == 0
    assert run_name(FIRST) not in output
    assert run_name({**FIRST, "seed": 2}) in output
    assert "line 1 of" in errors


def test_a_run_whose_rounds_are_cut_is_listed_as_unfinished(call: Call, tmp_path: Path) -> None:
    rounds = make_run(tmp_path / "run", FIRST).path / "rounds.jsonl"
    rounds.write_text(rounds.read_text().partition("\n")[0] + "\n")
    assert cells(call("report", tmp_path)[1], "run")[1:4] == ["1, unfinished", "1", "61.0%"]
    rounds.unlink()
    assert cells(call("report", tmp_path)[1], "run")[1:4] == ["0, unfinished", "–", "–"]  # noqa: RUF001


def test_a_sweep_that_has_not_started_is_shown(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, there=lambda at: False)
    code, output, errors = call("report", tmp_path, "--paper")
    assert (code, errors) == (0, "")
    assert cells(output, "krum") == ["0 of 3", "–"]  # noqa: RUF001
    assert call("report", tmp_path)[0] == 0


def test_a_narrow_terminal_shows_a_sweep_that_has_not_started(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "TABLE_CHARS", 60)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "50")
    make_sweep(tmp_path, there=lambda at: False)
    code, output, _ = call("report", tmp_path)
    assert code == 0
    assert "0 of 3" in output


def test_an_export_to_a_file_is_one_sentence(call: Call, tmp_path: Path) -> None:
    file = make_sweep(tmp_path, {"seed": [1]})
    code, _, errors = call("report", tmp_path, "--paper", "--export", file)
    assert (code, errors) == (2, f"snowball: {file} cannot be used: File exists\n")


def test_without_matplotlib_tables_are_written_and_one_sentence_says_what_is_missing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "snowball.report.export.matplotlib", raising=False)
    make_sweep(tmp_path / "sweep", {"seed": [1]}, figure=FIGURE)
    code, output, errors = call("report", tmp_path / "sweep", "--export", tmp_path / "out")
    assert (code, errors.count("\n")) == (0, 1)
    assert "matplotlib" in errors
    assert "3 files are in" in output


@pytest.mark.parametrize("options", [("--paper",), ("--paper", "--export", "out")])
def test_no_sweep_is_one_sentence(call: Call, tmp_path: Path, options: tuple[str, ...]) -> None:
    make_run(tmp_path / "run", FIRST)
    code, _, errors = call("report", tmp_path, *options)
    assert (code, errors) == (2, f"snowball: there is no sweep in {tmp_path}\n")


@pytest.mark.parametrize("options", [(), ("--paper",)])
def test_a_folder_that_does_not_exist_is_one_sentence_alone_and_beside_others(
    call: Call, tmp_path: Path, options: tuple[str, ...]
) -> None:
    make_sweep(tmp_path / "sweep", {"seed": [1]})
    sentence = f"snowball: {tmp_path / 'nosuch'} is not a folder\n"
    assert call("report", tmp_path / "nosuch", *options) == (2, "", sentence)
    assert call("report", tmp_path / "sweep", tmp_path / "nosuch", *options) == (2, "", sentence)


def test_a_manifest_that_is_none_and_nothing_else_is_one_sentence(call: Call, tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "a.json").write_text("{}")
    for options in ((), ("--paper",)):
        code, _, errors = call("report", tmp_path, *options)
        assert code == 2
        assert errors == f"snowball: {tmp_path}/sweeps/a.json is not a sweep's manifest: it has no 'name'\n"


def test_plain_runs_are_shown_as_they_were(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path / "good", FIRST)
    code, output, errors = call("report", tmp_path)
    assert (code, errors) == (0, "")
    assert cells(output, "good")[0] == "ideal"
    assert "standard deviation" not in output
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    code, _, errors = call("report", tmp_path)
    assert code == 2
    assert errors.count("\n") == 1


def test_a_manifest_called_run_is_not_taken_for_a_run(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, name="run", title="A grid called run")
    code, output, errors = call("report", tmp_path)
    assert (code, errors) == (0, "")
    assert "sweeps" not in output
    assert "run: A grid called run" in output


def test_export_writes_every_table(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", published="label-skew")
    code, output, errors = call("report", tmp_path / "sweep", "--paper", "--export", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert f"3 files are in {tmp_path / 'out'}." in output
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        f"cpu-table1.{ending}" for ending in ("csv", "md", "tex")
    ]
    assert "(0.21)" in (tmp_path / "out" / "cpu-table1.tex").read_text(encoding="utf-8")
    call("report", tmp_path / "sweep", "--export", tmp_path / "out")
    assert "(0.21)" not in (tmp_path / "out" / "cpu-table1.tex").read_text(encoding="utf-8")


def test_export_writes_runs_that_belong_to_no_sweep(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", {"seed": [1]}, name="runs")
    make_run(tmp_path / "single", FIRST)
    code, output, errors = call("report", tmp_path, "--export", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert f"7 files are in {tmp_path / 'out'}." in output
    names = [f"runs{number}.{ending}" for number in ("-2", "") for ending in ("csv", "md", "tex")]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["rounds.csv", *sorted(names)]
    lines = (tmp_path / "out" / "runs.csv").read_text(encoding="utf-8").splitlines()
    assert [line.partition(",")[0] for line in lines] == ["run", "single"]


def test_a_page_to_the_standard_output_is_alone_there(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path / "single", FIRST)
    code, output, errors = call("report", tmp_path / "single", "--html", "-", "--export", tmp_path / "out")
    assert code == 0
    assert output.startswith("<!DOCTYPE html>")
    assert output.rstrip().endswith("</html>")
    assert cells(errors, "single")[0] == "ideal"
    assert f"4 files are in {tmp_path / 'out'}.\n" in errors


FIGURE = {"kind": "bars", "x": "defense.name", "value": "backdoor_accuracy"}


def test_export_draws_figures_too(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    make_sweep(tmp_path / "sweep", {"seed": [1]}, figure=FIGURE)
    code, output, errors = call("report", tmp_path / "sweep", "--export", tmp_path / "out")
    assert (code, errors) == (0, "")
    assert "4 files are in" in output
    assert (tmp_path / "out" / "cpu-table1.svg").is_file()


WRITTEN = [(), ("--export", "out"), ("--html", "page.html"), ("--export", "out", "--html", "page.html")]


@pytest.mark.parametrize("options", WRITTEN)
def test_a_figure_that_cannot_be_drawn_is_one_sentence_whatever_is_written(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_sweep(tmp_path / "sweep", {"seed": [1]}, figure=FIGURE | {"kind": "pie"})
    code, output, errors = call("report", "sweep", *options)
    assert code == 0
    assert errors.count("\n") == 1
    assert errors.startswith("snowball: the figure of cpu/table1 cannot be drawn: figure.kind is one of")
    assert ("3 files are in" in output) is ("--export" in options)


@pytest.mark.parametrize("options", WRITTEN)
def test_rounds_that_no_figure_can_show_are_one_sentence_whatever_is_written(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_sweep(tmp_path / "sweep", {"seed": [1]}, figure={"kind": "curves"})
    file = Path("sweep") / run_name(FIRST) / "rounds.jsonl"
    file.write_text("{}\n" + file.read_text().partition("\n")[2])
    code, output, errors = call("report", "sweep", *options)
    assert (code, errors) == (0, f"snowball: line 1 of {file} is not a round's record: it has no 'round'\n")
    assert ("4 files are in" in output) is ("--export" in options)


def test_runs_that_the_page_cannot_show_are_on_the_error_output(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path / "good", FIRST)
    file = make_run(tmp_path / "bad", FIRST).path / "rounds.jsonl"
    file.write_text("{}\n" + file.read_text().partition("\n")[2])
    code, _, errors = call("report", tmp_path, "--html", tmp_path / "page.html")
    assert (code, errors) == (0, f"snowball: line 1 of {file} is not a round's record: it has no 'round'\n")


def test_a_page_without_a_run_is_refused_with_every_sentence_once(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, there=lambda at: False)
    code, output, errors = call("report", tmp_path, "--paper", "--html", tmp_path / "page.html")
    assert code == 2
    assert cells(output, "krum") == ["0 of 3", "–"]  # noqa: RUF001
    assert errors.splitlines() == [
        f"snowball: there is no run in {tmp_path}: no folder in it has a run.json",
        f"snowball: {tmp_path / 'page.html'} is not written: there is no run to report on",
    ]


def test_the_page_has_the_sweeps_and_the_faults(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, {"seed": [1]}, published="label-skew")
    (tmp_path / run_name(FIRST) / "summary.json").unlink()
    page = tmp_path / "page.html"
    code, output, errors = call("report", tmp_path, "--paper", "--html", page)
    assert code == 0
    assert errors.count("\n") == 1
    assert f"The report is {page}" in output
    text = page.read_text(encoding="utf-8")
    assert "A made-up table" in text
    assert "is not finished" in text


def test_a_run_with_a_summary_of_another_version_is_listed_from_its_rounds(call: Call, tmp_path: Path) -> None:
    make_sweep(tmp_path, {"defense.name": ["ideal"], "seed": [1]})
    (tmp_path / run_name(FIRST) / "summary.json").write_text('{"best": 7}')
    code, output, errors = call("report", tmp_path)
    assert code == 0
    assert cells(output, run_name(FIRST))[1:4] == ["3", "3", "81.0%"]
    assert cells(output, "ideal") == ["0 of 1", "–"]  # noqa: RUF001
    assert "summary.json is of another version: its 'best' cannot be 7" in errors
