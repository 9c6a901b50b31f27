"""The comparison of two benchmark results."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.files import RESULTS
from benchmarks.measuring.timing import make_case
from benchmarks.speed.drift import TOLERATED, Drift, main


def written(path: Path, **ratios: float | None) -> str:
    cases = [make_case(name, 1.0, ratio) for name, ratio in ratios.items()]
    path.write_text(json.dumps({"machine": {}, "cases": cases}), encoding="utf-8")
    return str(path)


def test_what_fell_by_more_than_a_fifth_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path / "old", steady=10.0, fallen=10.0, faster=10.0, gone=1.0, bare=None)
    new = written(tmp_path / "new", steady=8.1, fallen=7.9, faster=20.0, fresh=1.0, bare=None)
    assert main([old, new]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["case", "old", "new", "change"]
    assert [line.split() for line in lines] == [
        ["steady", "10", "8.1", "-19.0%"],
        ["fallen", "10", "7.9", "-21.0%", "SLOWER"],
        ["faster", "10", "20", "+100.0%"],
    ]


def test_nothing_that_fell_too_far_is_exit_code_0(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old", a=10.0), written(tmp_path / "new", a=8.0 + 1e-9)
    assert main([old, new]) == 0


def test_a_fifth_exactly_is_tolerated() -> None:
    assert TOLERATED == 0.2
    assert not Drift("a", 1.0, 0.800001).is_slower
    assert Drift("a", 1.0, 0.799).is_slower


@pytest.mark.parametrize("file", sorted(RESULTS.glob("bench-*.json")), ids=lambda file: file.name)
def test_every_result_can_be_compared_with_itself(file: Path) -> None:
    assert main([str(file), str(file)]) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not a result of `snowball bench`"),
        ("[]", "is not a result of `snowball bench`"),
        ("\udcff", "is not a result of `snowball bench`"),
        ("[" * 100_000, "is not a result of `snowball bench`"),
        ('{"cases": 3}', "is not a result of `snowball bench`"),
        ('{"cases": [{"name": "a"}]}', "is not a result of `snowball bench`: KeyError, 'ratio'"),
        ('{"cases": [{"name": ["a"], "ratio": 1}]}', "is not a result of `snowball bench`"),
        ('{"cases": [{"name": "a", "ratio": "1"}]}', "has the ratio '1' for 'a', which is no positive number"),
        ('{"cases": [{"name": "a", "ratio": NaN}]}', "has the ratio 'nan' for 'a', which is no positive number"),
        ('{"cases": [{"name": "a", "ratio": 0}]}', "has the ratio '0' for 'a', which is no positive number"),
        ('{"cases": [{"name": "a", "ratio": true}]}', "has the ratio 'True' for 'a', which is no positive number"),
        ('{"cases": [{"name": "b", "ratio": 1}]}', "have 1 and 1 cases with a ratio, and none of the same name"),
        ('{"cases": []}', "have 1 and 0 cases with a ratio, and none of the same name"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, sentence: str
) -> None:
    old, new = written(tmp_path / "old", a=1.0), tmp_path / "new"
    new.write_text(content, encoding="utf-8", errors="surrogateescape")
    assert main([old, str(new)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert sentence in said.err


@pytest.mark.parametrize("arguments", [[], ["one"], ["one", "two", "three"]])
def test_it_takes_two_files(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert f"and {len(arguments)} were named" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing: Any = tmp_path / "missing.json"
    assert main([str(missing), str(missing)]) == 2
    assert "missing.json is not a result" in capsys.readouterr().err
