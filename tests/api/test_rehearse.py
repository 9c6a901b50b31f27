"""`snowball.rehearse` and its plan: a federation in, defenses under attacks and a recommendation out."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import snowball
from snowball import api
from snowball.errors import SettingError

TINY: dict[str, Any] = {
    "sites": 5,
    "rounds": 1,
    "examples": 100,
    "training": {"epochs": 1},
    "attacks": ["cba"],
    "defenses": ["median"],
}


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read rows as plain records."""
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_a_rehearsal_has_one_row_per_defense_and_attack_and_is_not_repeated(tmp_path: Path) -> None:
    result = snowball.rehearse(**TINY, out=tmp_path, jobs=2)
    assert [(row["defense"], row["attack"]) for row in result.frame] == [
        ("fedavg", "none"),
        ("fedavg", "cba"),
        ("median", "none"),
        ("median", "cba"),
    ]
    assert result.frame[0]["accuracy_lost"] == 0
    assert result.frame[0]["backdoor"] is not None  # of a clean model, on the attack's samples
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/run.json")}
    assert len(times) == 4
    plain = snowball.rehearse(**TINY, out=tmp_path, jobs=2).plain()
    assert json.loads(json.dumps(plain)) == plain == result.plain()
    assert [*plain] == [
        *("federation", "hostile_sites", "examples", "bounds", "clean_accuracy", "cells"),
        *("defense", "recommendation", "guard", "folder"),
    ]
    assert plain["bounds"] == {"backdoor": 0.05, "accuracy_lost": 0.02, "honest_left_out": 0.1}
    assert plain["hostile_sites"] == [3]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert "Rehearsal of 5 sites" in snowball.report(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_file_gives_the_settings_and_arguments_replace_them(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(
        'sites = 5\nrounds = 7\nexamples = 100\nattacks = ["ipm"]\ndefenses = ["fedavg"]\n[training]\nepochs = 1\n',
        encoding="utf-8",
    )
    result = snowball.rehearse(file, rounds=1, out=tmp_path / "runs", jobs=1)
    assert [(row["defense"], row["attack"], row["backdoor"]) for row in result.frame] == [
        ("fedavg", "none", None),
        ("fedavg", "ipm", None),
    ]
    assert result.rehearsal.settings.rounds == 1


def test_own_data_with_its_clients_and_an_own_model_are_rehearsed(tmp_path: Path) -> None:
    labels = np.arange(240) % 3
    features = np.random.default_rng(0).normal(size=(240, 6)) + 2 * np.eye(6)[labels]
    data = snowball.OwnData(train=(features, labels), clients=[f"hospital {number % 6}" for number in range(240)])
    settings = {name: TINY[name] for name in ("rounds", "training", "attacks", "defenses")}
    result = snowball.rehearse(**settings, data=data, model=lambda: nn.Linear(6, 3), out=tmp_path, jobs=1)
    assert len(result.rehearsal.sites.sizes) == 6
    assert {row["word"] for row in result.frame} <= {"holds", "fails", "says nothing"}
    assert len(list(tmp_path.glob("own-cba-*/summary.json"))) == 4
    with pytest.raises(SettingError, match="the data comes with 6 clients: leave sites and sizes out"):
        snowball.rehearse(**settings, sites=5, data=data, model=lambda: nn.Linear(6, 3), out=tmp_path, jobs=1)


def test_an_interrupted_rehearsal_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, event: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(api.Estimate, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            snowball.rehearse(**TINY, out=tmp_path, jobs=1)
    assert len(snowball.rehearse(**TINY, out=tmp_path, jobs=1).frame) == 4


def test_a_defense_that_fails_is_not_recommended_and_says_why(tmp_path: Path) -> None:
    broken = [{"name": "bulyan", "tolerate": 2}]
    result = snowball.rehearse(**TINY | {"defenses": broken}, out=tmp_path, jobs=2)
    words = {row["word"] for row in result.frame if row["defense"] == "bulyan:tolerate=2"}
    assert words == {"not run"}
    assert all(row["reason"] for row in result.frame if row["word"] == "not run")
    assert result.defense != "bulyan:tolerate=2"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "how many sites are there? Give sites, such as 8, or the sizes of all sites"),
        ({"sites": 1}, "sites = 1: no defense can tell fewer than 4 sites apart"),
        ({"sites": -5}, "sites = -5: no defense can tell fewer than 4 sites apart"),
        ({"sites": 8, "sizes": [5] * 7}, "sizes has 7 numbers, expected one for each of sites = 8"),
        ({"sizes": [5, 0, 5, 5]}, "sizes must be numbers of examples from 1, got 0"),
        ({"sizes": [5, -3, 5, 5]}, "sizes must be numbers of examples from 1, got -3"),
        ({"sizes": [10**30] * 4}, "a rehearsal holds an integer of 100 bits; the most is 63"),
        ({"sizes": []}, "sites = 0: no defense can tell fewer than 4 sites apart"),
        (
            {"sizes": [5, 5, 5, 5]},
            "4 sites need 10 examples each on average, 40 in all, and there are 20 of mnist-sample",
        ),
        (
            {"sites": 2000},
            "2000 sites need 10 examples each on average, 20000 in all, and there are 12000 of mnist-sample",
        ),
        ({"sites": 10**9}, "sites = 1000000000 is more than 10000: rehearse a part of them"),
        ({"sites": 8, "hostile": 4}, "hostile = 4 of 8 sites: nothing holds against half or more; give up to 3"),
        (
            {"sites": 8, "hostile": 0},
            "hostile = 0 must be 1 or more; a federation without attackers is always rehearsed",
        ),
        ({"sites": 8, "hostile_sites": [9]}, "hostile_sites must be different numbers from 1 to 8, got [9]"),
        ({"sites": 8, "hostile_sites": [2, 2]}, "hostile_sites must be different numbers from 1 to 8, got [2, 2]"),
        (
            {"sites": 8, "hostile_sites": [2], "hostile": 2},
            "hostile = 2, but hostile_sites names 1: give one of them",
        ),
        ({"sites": 8, "per_round": 9}, "per_round = 9 must lie between 4 and sites = 8"),
        ({"sites": 8, "rounds": 0}, "rounds = 0 should be greater than or equal to 1"),
        ({"sites": 8, "attacks": ["cbaa"]}, "attacks = 'cbaa' is not known; did you mean 'cba'?"),
        ({"sites": 8, "attacks": ["none"]}, "attacks names nobody: give at least one attack, such as cba"),
        ({"sites": 8, "attacks": [{}]}, "attacks must be a list of names, or of tables with a name, got {}"),
        ({"sites": 8, "attacks": [{"name": "cba", "x": 1}]}, "attack.x is not a setting of cba"),
        ({"sites": 8, "defenses": ["krumm"]}, "defenses = 'krumm' is not known; did you mean 'krum'?"),
        ({"sites": 8, "seeds": [-1]}, "seed = -1 should be greater than or equal to 0"),
        ({"sites": 8, "examples": 10**6}, "examples = 1000000 is more than the 12000 of mnist-sample"),
        ({"sites": 8, "training": {"lrr": 1}}, "training.lrr is not a setting of training; did you mean 'lr'?"),
        ({"sites": 8, "data": "mnst"}, "'mnst' is not a data set; did you mean 'mnist'?"),
        ({"sites": 8, "size": 3}, "size is not a setting of a rehearsal; did you mean 'sizes'?"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_before_there_is_a_folder(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError) as refused:
        snowball.rehearse(**settings, out=tmp_path / "runs", jobs=1)
    assert str(refused.value).startswith(sentence)
    assert not (tmp_path / "runs").exists()
