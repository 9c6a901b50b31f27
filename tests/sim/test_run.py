import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.errors import RunError, SettingError
from snowball.records.checkpoint import RunState, load_state, save_state
from snowball.records.files import read_json, write_json
from snowball.records.lock import LOCK_FILE
from snowball.records.run import RunFolder
from snowball.records.run_names import ADDED_SETTINGS, hash_settings
from snowball.settings import flatten_settings
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.run import describe_run, is_finished, run_experiment

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")


def read_records(path: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in r.items() if name != "seconds"} for r in RunFolder.open(path).read_rounds()]


def test_a_run_leaves_its_whole_folder(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=1")
    records = list(run_experiment(experiment, tmp_path / "run"))
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_rounds() == records
    assert Experiment.parse(folder.run["settings"]) == experiment
    assert {"python", "torch", "numpy", "snowball"} <= set(folder.run["versions"])
    assert {"seed", "commit", "machine", "data", "trigger", "started"} <= set(folder.run)
    assert folder.run["data"]["sha256"]
    assert folder.read_summary() is not None
    assert is_finished(tmp_path / "run", experiment)


def test_a_run_records_what_its_trigger_looks_like(tiny: MakeExperiment) -> None:
    record = describe_run(Federation.build(tiny("attack.name=dba", "attack.target=5", "attack.trigger=white-square")))[
        "trigger"
    ]
    assert (record["name"], record["data"], record["target"]) == ("white-square", "mnist-sample", 5)
    assert record["label"] != 5
    assert len(record["picture"]["parts"]) == 3
    assert len(json.dumps(record)) < 4000


@pytest.mark.parametrize("attack", ["none", "ipm", "edge-case"])
def test_where_there_is_no_trigger_none_is_recorded(tiny: MakeExperiment, attack: str) -> None:
    assert describe_run(Federation.build(tiny(f"attack.name={attack}")))["trigger"] is None


def stop_after(rounds: int, experiment: Experiment, path: Path) -> None:
    running = run_experiment(experiment, path)
    for _ in range(rounds):
        next(running)
    running.close()  # type: ignore[attr-defined]


def test_a_stopped_run_goes_on_to_the_same_end(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=3")
    list(run_experiment(experiment, tmp_path / "whole"))
    stop_after(2, experiment, tmp_path / "stopped")
    assert not is_finished(tmp_path / "stopped", experiment)
    leftovers = [tmp_path / "stopped" / name / f".snowball-{'0' * 32}" for name in ("", "checkpoint")]
    for path in leftovers:
        path.write_bytes(b"torn")
    assert [record["round"] for record in run_experiment(experiment, tmp_path / "stopped", resume=True)] == [3]
    assert not any(path.exists() for path in leftovers)
    assert read_records(tmp_path / "stopped") == read_records(tmp_path / "whole")


def test_a_second_run_in_a_folder_is_refused_and_changes_nothing(
    tiny: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowball.records.lock.TIMEOUT_SECONDS", 0.0)
    experiment = tiny()
    list(run_experiment(experiment, tmp_path / "whole"))
    first = run_experiment(experiment, tmp_path / "shared")
    next(first)
    holder = rf"another run \(process {os.getpid()} on {re.escape(socket.gethostname())}, since 20.+\)"
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(RunError, match=f"^{holder} is using {tmp_path / 'shared'}: wait until it ends, or choose"):
            list(run_experiment(experiment, tmp_path / "shared", **options))
    list(first)
    assert read_records(tmp_path / "shared") == read_records(tmp_path / "whole")
    assert len(list(run_experiment(experiment, tmp_path / "shared", overwrite=True))) == 2


@pytest.mark.parametrize("defense", ["fldetector", "foolsgold"])
def test_a_bounded_history_in_many_files_is_resumed_exactly(
    tiny: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defense: str
) -> None:
    monkeypatch.setattr("snowball.records.checkpoint.MIN_STORED_BYTES", 1)
    experiment = tiny("rounds=4", f"defense.name={defense}", "defense.remember=6")
    list(run_experiment(experiment, tmp_path / "whole"))
    stop_after(2, experiment, tmp_path / "stopped")
    assert len(list((tmp_path / "stopped" / "checkpoint" / "tensors").iterdir())) > 6
    list(run_experiment(experiment, tmp_path / "stopped", resume=True))
    assert read_records(tmp_path / "stopped") == read_records(tmp_path / "whole")
    ends = [read_files(tmp_path / name / "checkpoint") for name in ("whole", "stopped")]
    assert {path.name: content for path, content in ends[0].items()} == {
        path.name: content for path, content in ends[1].items()
    }


def test_what_the_checkpoint_does_not_know_is_done_again(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny()
    stop_after(1, experiment, tmp_path / "run")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "run" / "checkpoint", kept)
    list(run_experiment(experiment, tmp_path / "run", resume=True))
    expected = read_records(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    shutil.copytree(kept, tmp_path / "run" / "checkpoint")  # as if killed between record and checkpoint
    assert [record["round"] for record in run_experiment(experiment, tmp_path / "run", resume=True)] == [2]
    assert read_records(tmp_path / "run") == expected


def test_resuming_what_never_started_starts_it(tiny: MakeExperiment, tmp_path: Path) -> None:
    assert [record["round"] for record in run_experiment(tiny("rounds=1"), tmp_path / "new", resume=True)] == [1]


def test_resuming_with_other_settings_names_them(tiny: MakeExperiment, tmp_path: Path) -> None:
    stop_after(1, tiny(), tmp_path / "run")
    with pytest.raises(RunError) as caught:
        list(run_experiment(tiny("seed=4", "training.epochs=2"), tmp_path / "run", resume=True))
    assert "was started with seed = 3, not 4, training.epochs = 1, not 2: resume it with" in str(caught.value)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("defense", ["fedavg", "snowball"])
def test_a_run_with_added_rounds_equals_one_that_had_them_from_the_start(
    tiny: MakeExperiment, tmp_path: Path, defense: str, finished: bool
) -> None:
    changes = [f"defense.name={defense}", *(["defense.grow_after=1"] if defense == "snowball" else [])]
    changes += ["attack.share_of_rounds=0.5", "data.clients=12"]
    list(run_experiment(tiny("rounds=3", *changes), tmp_path / "whole"))
    stop_after(2 if finished else 1, tiny("rounds=2", *changes), tmp_path / "short")
    if finished:
        list(run_experiment(tiny("rounds=2", *changes), tmp_path / "short", resume=True))
    longer = tiny("rounds=3", *changes)
    assert not is_finished(tmp_path / "short", longer)
    list(run_experiment(longer, tmp_path / "short", resume=True))
    assert is_finished(tmp_path / "short", longer)
    assert read_records(tmp_path / "short") == read_records(tmp_path / "whole")
    ends = [read_json(tmp_path / name / "run.json")["settings"] for name in ("whole", "short")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("changes", [("defense.name=snowball",), ("defense.name=intersection",)])
def test_rounds_are_not_added_where_earlier_ones_would_differ(
    tiny: MakeExperiment, tmp_path: Path, changes: tuple[str, ...]
) -> None:
    stop_after(1, tiny(*changes), tmp_path)
    before = read_files(tmp_path)
    with pytest.raises(RunError) as caught:
        list(run_experiment(tiny("rounds=3", *changes), tmp_path, resume=True))
    reason = "defense.grow_after = 0.25 is a share of the rounds, not a round such as 5"
    assert f"has 2 rounds and cannot get 3: {reason}; start a longer run in another folder" in str(caught.value)
    assert read_files(tmp_path) == before


def test_rounds_are_not_added_to_a_run_of_a_sweep(tiny: MakeExperiment, tmp_path: Path) -> None:
    folder = tmp_path / f"mnist-cba-{hash_settings(tiny().dump_settings())}"
    stop_after(1, tiny(), folder)
    with pytest.raises(RunError, match="has all of its settings in its name, its rounds too"):
        list(run_experiment(tiny("rounds=3"), folder, resume=True))


def test_rounds_and_another_setting_are_not_changed_together(tiny: MakeExperiment, tmp_path: Path) -> None:
    stop_after(1, tiny(), tmp_path)
    with pytest.raises(RunError, match=r"was started with training\.epochs = 1, not 2: "):
        list(run_experiment(tiny("rounds=3", "training.epochs=2"), tmp_path, resume=True))


def test_a_run_from_before_a_setting_was_added_goes_on_with_its_former_value(
    tiny: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(1, tiny(), tmp_path)
    description = read_json(tmp_path / "run.json")
    del description["settings"]["defense"]["ballot_floor"]
    write_json(tmp_path / "run.json", description)
    monkeypatch.setitem(ADDED_SETTINGS, "ballot_floor", 0.5)
    with pytest.raises(RunError, match=r"was started with defense\.ballot_floor = 0\.5, not 0\.25: resume"):
        list(run_experiment(tiny("defense.ballot_floor=0.25"), tmp_path, resume=True))
    assert [record["round"] for record in run_experiment(tiny(), tmp_path, resume=True)] == [2]


def test_a_damaged_checkpoint_repeats_its_round(
    tiny: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("snowball.records.checkpoint.MIN_STORED_BYTES", 2**12)
    experiment = tiny("rounds=3", "defense.name=foolsgold")
    stop_after(2, experiment, tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "tensor")
    list(run_experiment(experiment, tmp_path / "state", resume=True))
    whole = read_records(tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "tensor", tmp_path / "state")
    tensors = (tmp_path / "tensor" / "checkpoint" / "tensors").iterdir()
    last = max(tensors, key=lambda tensor: tensor.stat().st_mtime_ns)
    for path in (tmp_path / "state" / "checkpoint" / "state.safetensors", last):
        path.write_bytes(path.read_bytes()[:300] + b"!" + path.read_bytes()[301:])
    for name, message in (("state", "state.safetensors is not a checkpoint"), ("tensor", f"it needs {last}, and it")):
        caplog.clear()
        assert [each["round"] for each in run_experiment(experiment, tmp_path / name, resume=True)] == [2, 3]
        assert read_records(tmp_path / name) == whole
        assert [message in logged for logged in caplog.messages] == [True]


def test_a_run_with_two_damaged_checkpoints_is_refused(tiny: MakeExperiment, tmp_path: Path) -> None:
    stop_after(2, tiny("rounds=3"), tmp_path)
    for name in ("state.safetensors", "state.safetensors.before"):
        (tmp_path / "checkpoint" / name).write_bytes(b"")
    before = read_files(tmp_path)
    with pytest.raises(RunError, match=r"checkpoint/state\.safetensors is not a checkpoint of a run: .*; nor is state"):
        list(run_experiment(tiny("rounds=3"), tmp_path, resume=True))
    assert read_files(tmp_path) == before


def drop_last(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("harm", [drop_last, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("finished", [False, True])
def test_a_run_that_lost_rounds_is_not_resumed(
    tiny: MakeExperiment, tmp_path: Path, harm: Callable[[Path], None], finished: bool
) -> None:
    experiment = tiny()
    if finished:
        list(run_experiment(experiment, tmp_path))
    else:
        stop_after(1, experiment, tmp_path)
    harm(tmp_path / "rounds.jsonl")
    before = read_files(tmp_path)
    assert not is_finished(tmp_path, experiment)
    with pytest.raises(RunError, match=r"rounds\.jsonl does not hold all of rounds 1 to [12], .* remove the folder to"):
        list(run_experiment(experiment, tmp_path, resume=True))
    assert read_files(tmp_path) == before


def read_files(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != LOCK_FILE}


def test_a_checkpoint_of_another_model_leaves_the_folder_as_it_is(tiny: MakeExperiment, tmp_path: Path) -> None:
    stop_after(1, tiny(), tmp_path)
    save_state(RunState(0, torch.zeros(7)), tmp_path / "checkpoint")
    before = read_files(tmp_path)
    with pytest.raises(RunError, match=r"state\.safetensors is not a checkpoint of this run: its model"):
        list(run_experiment(tiny(), tmp_path, resume=True))
    assert read_files(tmp_path) == before


def test_a_checkpoint_with_a_damaged_memory_leaves_the_folder_as_it_is(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=2", "defense.name=foolsgold")
    stop_after(1, experiment, tmp_path)
    layout = Federation.build(experiment).layout
    state = load_state(tmp_path / "checkpoint", experiment.rounds, layout)
    assert state is not None
    next(iter(state.defense["clients"].values()))["sum"][5] = torch.nan
    save_state(state, tmp_path / "checkpoint")
    before = read_files(tmp_path)
    with pytest.raises(RunError, match=r"checkpoint cannot be used: the defense's state is damaged .* are NaN"):
        list(run_experiment(experiment, tmp_path, resume=True))
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("description", [{}, {"settings": [1]}])
def test_a_run_without_settings_is_not_resumed(
    tiny: MakeExperiment, tmp_path: Path, description: dict[str, Any]
) -> None:
    RunFolder.create(tmp_path, description)
    with pytest.raises(RunError, match=r"run\.json holds no settings"):
        list(run_experiment(tiny(), tmp_path, resume=True))


def test_resuming_without_run_json_names_it(tiny: MakeExperiment, tmp_path: Path) -> None:
    stop_after(1, tiny(), tmp_path)
    (tmp_path / "run.json").unlink()
    before = read_files(tmp_path)
    with pytest.raises(RunError, match=r"has a rounds\.jsonl and no run\.json"):
        list(run_experiment(tiny(), tmp_path, resume=True))
    assert read_files(tmp_path) == before


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("defense.clusters=5", "5 clusters need over 5 updates, got 5"),
        ('defense.layers=["nope"]', "layer 'nope' is not in the model"),
    ],
)
def test_what_no_round_could_satisfy_is_refused_before_there_is_a_folder(
    tiny: MakeExperiment, tmp_path: Path, assignment: str, sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        list(run_experiment(tiny(assignment), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_left_alone_unless_told(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=1")
    list(run_experiment(experiment, tmp_path / "run"))
    before = read_records(tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        list(run_experiment(tiny("rounds=1", "seed=4"), tmp_path / "run"))
    assert read_records(tmp_path / "run") == before
    list(run_experiment(tiny("rounds=1", "seed=4"), tmp_path / "run", overwrite=True))
    assert read_records(tmp_path / "run") != before


def test_flat_names_nested_settings() -> None:
    assert flatten_settings({"a": 1, "b": {"c": {"d": [2]}}}) == {"a": 1, "b.c.d": [2]}


def test_nothing_of_a_run_is_a_pickle(tiny: MakeExperiment, tmp_path: Path) -> None:
    list(run_experiment(tiny("rounds=1"), tmp_path))
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert files == {LOCK_FILE, "run.json", "rounds.jsonl", "summary.json", "checkpoint/state.safetensors"}
    json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
