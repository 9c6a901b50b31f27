"""The result of a run: a table, a summary, a sentence, a picture and a page."""

import json
import sys
from pathlib import Path

import pytest

import snowball
from snowball.errors import MissingExtra, RunError
from snowball.records.run import RunFolder
from snowball.report import build_rows

FIRST = ["round", "main_accuracy", "backdoor_accuracy", "false_positive_rate", "false_negative_rate"]


def reopen(result: snowball.RunResult) -> snowball.RunResult:
    return snowball.RunResult(result.folder)


def test_rounds_are_a_frame_with_the_fields_of_the_records(result: snowball.RunResult) -> None:
    pandas = pytest.importorskip("pandas")
    rounds = reopen(result).rounds
    assert isinstance(rounds, pandas.DataFrame)
    assert [*rounds.columns][:5] == FIRST
    assert {*rounds.columns} == {*RunFolder.open(result.folder).read_rounds()[0]}
    assert rounds["round"].tolist() == [1, 2]
    assert rounds["main_accuracy"].dtype == float


def test_without_pandas_rounds_are_records(result: snowball.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    rounds = reopen(result).rounds
    assert rounds == RunFolder.open(result.folder).read_rounds()
    assert [*rounds[0]][:5] == FIRST


def test_the_summary_is_that_of_the_file(result: snowball.RunResult) -> None:
    assert result.summary.plain() == json.loads((result.folder / "summary.json").read_bytes())


def test_the_verdict_is_the_report_s_sentence_about_the_defense(result: snowball.RunResult) -> None:
    assert str(result) == result.verdict
    assert result.verdict.startswith("fedavg ")
    assert "\n" not in result.verdict


def test_a_notebook_shows_a_small_table(result: snowball.RunResult) -> None:
    html = result._repr_html_()
    assert result.verdict in html
    assert f"<td>{build_rows([RunFolder.open(result.folder)])[0].cells()[-2]}</td>" in html
    assert len(html) < 2000


def test_names_from_a_file_are_escaped(result: snowball.RunResult, tmp_path: Path) -> None:
    for file in result.folder.glob("*.json*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    run = json.loads((tmp_path / "run.json").read_bytes())
    run["settings"]["defense"]["name"] = "<script>"
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    html = snowball.RunResult(tmp_path)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_plot_shows_both_accuracies(result: snowball.RunResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = result.plot()
    lines = figure.axes[0].get_lines()
    assert [[*line.get_ydata()] for line in lines] == [
        [record[name] for record in RunFolder.open(result.folder).read_rounds()]
        for name in ("main_accuracy", "backdoor_accuracy")
    ]
    assert figure.axes[0].get_title().split() == result.verdict.split()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    figure.savefig(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 0


def test_without_matplotlib_plot_says_what_to_install(
    result: snowball.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "snowball.report.export.matplotlib", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"^pictures need matplotlib: pip install 'matplotlib>=3\.9'$"):
        result.plot()


def test_the_report_is_a_page(result: snowball.RunResult, tmp_path: Path) -> None:
    page = result.report(tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    assert "<html" in page.read_text(encoding="utf-8")


def test_a_result_is_opened_by_its_folder(result: snowball.RunResult, tmp_path: Path) -> None:
    assert repr(reopen(result)) == f"RunResult({str(result.folder)!r})"
    with pytest.raises(RunError, match=r"is not a run's folder: it has no run.json$"):
        snowball.RunResult(tmp_path)
