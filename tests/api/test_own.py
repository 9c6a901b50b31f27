"""`snowball.run` on data and with models of the caller's own: runs of other data or models never mix."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import snowball
from snowball.errors import RunError, SettingError
from snowball.records.run import RunFolder
from snowball.report import build_rows, find_runs

LABELS = np.arange(120) % 3
FEATURES = np.random.default_rng(0).normal(size=(120, 12)) + 2 * np.eye(12)[LABELS]
SMALL = {"rounds": 1, "cohort": 5, "data.clients": 5, "data.minimum": 5, "attack.trigger": "features"}


def make_network() -> nn.Module:
    return nn.Linear(12, 3)


def make_larger_network() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 3))


def run(features: Any = FEATURES, model: Any = make_network, **more: Any) -> snowball.RunResult:
    return snowball.run("demo", SMALL | more.pop("overrides", {}), data=(features, LABELS), model=model, **more)


def test_own_data_and_an_own_model_give_a_result_that_the_same_call_finds(in_tmp: Path) -> None:
    first = run()
    recorded = RunFolder.open(first.folder).run
    assert (recorded["data"]["samples"], recorded["model"]["parameters"]) == ("float32 12", 39)
    assert first.folder.name.startswith("own-cba-fedavg-1-")
    before = (first.folder / "run.json").read_bytes()
    assert run().folder == first.folder
    assert (first.folder / "run.json").read_bytes() == before
    experiment = snowball.load_experiment("demo", SMALL, data=(FEATURES, LABELS), model=make_network)
    assert snowball.run(experiment).folder == first.folder


def test_other_data_and_other_models_have_other_folders(in_tmp: Path) -> None:
    names = {run().folder.name, run(FEATURES + 1).folder.name, run(model=make_larger_network).folder.name}
    assert len(names) == len(list((in_tmp / "runs").iterdir())) == 3
    assert len({name.rpartition("-")[2] for name in names}) == 1  # of the settings, which are the same


def test_a_folder_with_other_data_or_another_model_is_refused(in_tmp: Path) -> None:
    run(out="mine")
    for resume in (True, False):
        with pytest.raises(RunError, match="mine was started with other data"):
            run(FEATURES + 1, out="mine", resume=resume)
        with pytest.raises(RunError, match="mine was started with another model"):
            run(model=make_larger_network, out="mine", resume=resume)


def test_runs_of_other_data_or_models_are_not_compared(in_tmp: Path) -> None:
    for other in ({}, {"features": FEATURES + 1}, {"model": make_larger_network}):
        run(**other)
    run(overrides={"defense.name": "ideal"})
    conditions = [row.conditions for row in build_rows(find_runs([in_tmp / "runs"]))]
    assert (len(conditions), len(set(conditions))) == (4, 3)


def test_an_experiment_keeps_its_own_data_and_model_when_settings_change() -> None:
    experiment = snowball.load_experiment("demo", SMALL, data=(FEATURES, LABELS), model=make_network)
    changed = snowball.load_experiment(experiment, {"rounds": 3})
    assert (changed.rounds, changed.own_data, changed.own_model) == (3, experiment.own_data, experiment.own_model)
    named = snowball.load_experiment(experiment, {"data.name": "mnist-sample"})
    assert named.own_data is None
    assert named.own_model is experiment.own_model
    with pytest.raises(SettingError, match=r"^seed = 2 cannot change an experiment with own data or an own model"):
        snowball.load_experiment(experiment, {"seed": 2})
    again = snowball.load_experiment(experiment, {"seed": 2}, data=(FEATURES, LABELS), model=make_network)
    assert again.describe_own() != experiment.describe_own()


def test_a_sweep_refuses_what_it_cannot_send(in_tmp: Path) -> None:
    experiment = snowball.load_experiment("demo", SMALL, model=make_network)
    with pytest.raises(
        SettingError, match=r"^a sweep cannot send own data or an own model to its processes: call snow"
    ):
        snowball.sweep([{}], preset=experiment)
    assert list(in_tmp.iterdir()) == []


def test_rounds_go_to_trackers_too(in_tmp: Path) -> None:
    lines = (run(track=["csv"]).folder / "rounds.csv").read_text(encoding="utf-8").splitlines()
    assert [line.partition(",")[0] for line in lines] == ["round", "1"]


@pytest.mark.parametrize("track", ["csv", [1], None])
def test_trackers_are_a_list_of_names(in_tmp: Path, track: Any) -> None:
    with pytest.raises(SettingError, match=r"^track must be a list of names, such as \['csv'\], got "):
        run(track=track)
    with pytest.raises(SettingError, match="'cvs' is not a tracker; did you mean 'csv'"):
        run(track=["cvs"])
    assert list(in_tmp.iterdir()) == []
