"""`snowball.run`: from a name and some settings to a result, resumable, with errors of one sentence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import snowball
from snowball import api
from snowball.errors import RunError, SettingError
from snowball.records.run import RunFolder


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """Read a run's records without their times."""
    return [{**record, "seconds": None} for record in RunFolder.open(folder).read_rounds()]


def test_a_preset_a_file_and_an_experiment_give_the_same_run(tmp_path: Path, small: dict[str, int]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "demo"\nrounds = 1\n', encoding="utf-8")
    shorter = small | {"rounds": 1}
    experiment = snowball.load_experiment("demo", shorter)
    folders = [
        snowball.run("demo", shorter, out=tmp_path / "preset").folder,
        snowball.run(file, small | {"rounds": 1}, out=tmp_path / "file").folder,
        snowball.run(experiment, out=tmp_path / "experiment").folder,
    ]
    assert read_rounds(folders[0]) == read_rounds(folders[1]) == read_rounds(folders[2])
    in_memory = list(snowball.simulate(experiment))
    assert [{**record, "seconds": None} for record in in_memory] == read_rounds(folders[0])


def test_an_experiment_takes_overrides_too(small: dict[str, int]) -> None:
    experiment = snowball.load_experiment("demo", small)
    changed = snowball.load_experiment(experiment, {"defense.name": "krum", "seed": 7})
    assert (changed.defense.name, changed.seed, changed.cohort) == ("krum", 7, 6)
    assert snowball.load_experiment(experiment) is experiment


def test_overrides_are_those_of_the_command_line(small: dict[str, int]) -> None:
    assignments = [f"{path}={value}" for path, value in small.items()]
    by_name = snowball.load_experiment("paper/mnist", ["defense.name=krum", "defense.tolerate=0.25"])
    assert snowball.load_experiment("demo", small) == snowball.load_experiment("demo", assignments)
    assert snowball.load_experiment("paper/mnist", {"defense.tolerate": 0.25, "defense.name": "krum"}) == by_name
    assert snowball.load_experiment("paper/mnist", {"defense": {"tolerate": 0.25, "name": "krum"}}) == by_name


def test_numbers_of_numpy_are_numbers() -> None:
    overrides = {"seed": np.int64(3), "attack.poison_ratio": np.float32(0.5)}
    assert snowball.load_experiment("demo", overrides) == snowball.load_experiment(
        "demo", {"seed": 3, "attack.poison_ratio": 0.5}
    )


@pytest.mark.parametrize(
    ("source", "overrides", "sentence"),
    [
        ("dmeo", {}, "'dmeo' is neither a preset nor a file; did you mean 'demo'?"),
        (None, {}, "expected a preset's name, a TOML file or an experiment, got None"),
        ("demo", {"defence.name": "krum"}, "defence is not a setting; did you mean 'defense'?"),
        ("demo", {"defense.tolerat": 2}, "defense.tolerat is not a setting of fedavg"),
        ("demo", {"defense.name": "krumm"}, "defense.name = 'krumm' is not known; did you mean 'krum'?"),
        ("demo", {"rounds": "3"}, 'rounds = "3" should be a valid integer'),
        ("demo", {"rounds": True}, "rounds = true should be a valid integer"),
        ("demo", {"seed": 1 << 64}, "seed holds an integer of 65 bits; the most is 63"),
        ("demo", {"rounds": 0}, "rounds = 0 should be greater than or equal to 1"),
        ("demo", {"defense": "krum"}, "defense is a section: did you mean defense.name=krum?"),
        ("demo", {"defense.": 1}, "expected the path of a setting, such as 'defense.name', got 'defense.'"),
        (
            "demo",
            "runs/demo",
            "overrides must map settings to values, such as {'defense.name': 'krum'}, got 'runs/demo'",
        ),
    ],
)
def test_wrong_settings_are_refused_before_there_is_a_folder(
    in_tmp: Path, source: Any, overrides: Any, sentence: str
) -> None:
    with pytest.raises(SettingError) as refused:
        snowball.run(source, overrides)
    assert str(refused.value) == sentence
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize("workers", [0, -1, "2", 2.0, True, None])
def test_workers_are_counted_from_one(in_tmp: Path, small: dict[str, int], workers: Any) -> None:
    with pytest.raises(SettingError, match=r"^workers must be a whole number from 1, got "):
        snowball.run("demo", small, workers=workers)
    assert list(in_tmp.iterdir()) == []


def test_the_default_folder_follows_from_the_settings(in_tmp: Path, small: dict[str, int]) -> None:
    short = small | {"rounds": 1}
    first, again = snowball.run("demo", short), snowball.run("demo", short)
    other = snowball.run("demo", short | {"seed": 2})
    assert first.folder == again.folder
    assert first.folder.parent == Path("runs")
    assert first.folder.name.startswith("mnist-sample-cba-fedavg-1-")
    assert len(list((in_tmp / "runs").iterdir())) == 2
    assert other.folder.name.startswith("mnist-sample-cba-fedavg-2-")


def test_a_folder_with_another_run_is_refused(result: snowball.RunResult, small: dict[str, int]) -> None:
    before = (result.folder / "rounds.jsonl").read_bytes()
    for resume in (True, False):
        with pytest.raises(RunError, match=r"was started with seed = 1, not 2: resume it with the same settings or ch"):
            snowball.run("demo", small | {"seed": 2}, out=result.folder, resume=resume)
    assert (result.folder / "rounds.jsonl").read_bytes() == before


def test_a_finished_run_is_read_and_may_be_repeated(tmp_path: Path, small: dict[str, int]) -> None:
    short, out = small | {"rounds": 1}, tmp_path / "run"
    started = [RunFolder.open(snowball.run("demo", short, out=out).folder).run, None, None]
    summary = json.loads((out / "summary.json").read_bytes())
    (out / "run.json").write_text(json.dumps({**started[0], "started": "long ago"}), encoding="utf-8")
    snowball.run("demo", short, out=out)
    assert RunFolder.open(out).run["started"] == "long ago"
    snowball.run("demo", short, out=out, resume=False)
    assert RunFolder.open(out).run["started"] != "long ago"
    repeated = json.loads((out / "summary.json").read_bytes())
    assert {**repeated, "seconds": None} == {**summary, "seconds": None}


def test_an_interrupted_run_continues(
    tmp_path: Path, small: dict[str, int], result: snowball.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(record: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(api, "describe_round", interrupt)
        with pytest.raises(KeyboardInterrupt) as stopped:
            snowball.run("demo", small, out=tmp_path)
    assert stopped.value.__notes__ == [f"The rounds so far are in {tmp_path}: the same call continues after them."]
    assert [record["round"] for record in read_rounds(tmp_path)] == [1]
    assert snowball.RunResult(tmp_path).summary.last.round == 1  # type: ignore[union-attr]
    assert read_rounds(snowball.run("demo", small, out=tmp_path).folder) == read_rounds(result.folder)


def test_workers_give_the_same_records(tmp_path: Path, small: dict[str, int], result: snowball.RunResult) -> None:
    assert read_rounds(snowball.run("demo", small, out=tmp_path, workers=2).folder) == read_rounds(result.folder)


@pytest.mark.parametrize("call", ["run(small, workers=2, out='run')", "sweep([{}], preset=small, out='sweep')"])
def test_a_script_without_a_guard_is_told_so(tmp_path: Path, small: dict[str, int], call: str) -> None:
    script = tmp_path / "unguarded.py"
    lines = ("import snowball", f"small = snowball.load_experiment('demo', {small})", f"snowball.{call}")
    script.write_text("\n".join(lines), encoding="utf-8")
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.stderr.splitlines()[-1].endswith('; in a script, is the call under `if __name__ == "__main__":`?')
    assert not (tmp_path / "sweep" / "failed.json").exists()
