"""The command `rehearse`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

Call = Callable[..., tuple[int, str, str]]

TINY = [
    "--set",
    "examples=100",
    "--set",
    "training.epochs=1",
    "--attacks",
    "cba",
    "--defenses",
    "median",
    "--jobs",
    "2",
]


def test_a_rehearsal_says_what_will_run_and_what_to_choose(call: Call, tmp_path: Path) -> None:
    command = ["rehearse", "--sizes", "20,20,30,60,90", "--rounds", "1", *TINY, "--out", tmp_path]
    code, output, _ = call(*command)
    assert code == 0
    assert output.startswith("5 sites, 1 rounds; hostile: site 3, with 13.6% of 100 examples\n0 runs are done, 4 to do")
    assert "with 2 at a time\n" in output
    assert "plain backdoor (cba)" in output
    assert "Holds: a backdoor up to 5 % above a clean model's, 2 points of accuracy lost, 10 % of the honest" in output
    code, output, _ = call(*command, "--json")
    assert code == 0
    assert [(cell["defense"], cell["attack"]) for cell in json.loads(output)["cells"]][2:] == [
        ("median", "none"),
        ("median", "cba"),
    ]


def test_a_file_and_options_are_one_federation(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('sites = 9\n[training]\nepochs = 1\nlr = 0.02\n[[attacks]]\nname = "cba"\n', encoding="utf-8")
    options = ["--sites", "5", "--rounds", "1", "--defenses", "fedavg", "--set", "training.lr=0.01"]
    code, output, errors = call("rehearse", file, *options, "--set", "examples=100", "--json", "--out", tmp_path / "o")
    assert code == 0
    federation = json.loads(output)["federation"]
    assert (federation["sites"], federation["training"]) == (5, {"epochs": 1, "lr": 0.01})
    assert "2 to do in" in errors


def test_failed_runs_are_a_line_and_exit_code_1(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('[[defenses]]\nname = "bulyan"\ntolerate = 2\n', encoding="utf-8")
    small = ["--sites", "5", "--rounds", "1", "--attacks", "cba", "--set", "examples=100", "--set", "training.epochs=1"]
    code, output, errors = call("rehearse", file, *small, "--out", tmp_path)
    assert code == 1
    assert output.count("not run: ") == 2
    assert errors == f"some runs failed; {tmp_path / 'failed.json'} says why; --retry runs them again\n"


def test_training_that_diverges_without_an_attack_is_refused(call: Call, tmp_path: Path) -> None:
    run = ["rehearse", "--sites", "5", "--rounds", "1", *TINY, "--out", tmp_path, "--set", "training.lr=1e30"]
    code, _, errors = call(*run)
    assert code == 2
    assert errors.startswith("snowball: training diverged in round 1: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "how many sites are there? Give sites, such as 8, or the sizes of all sites"),
        (["--sites", "8", "--sizes", "1;2"], "--sizes must be whole numbers with commas between them, got '1;2'"),
        (["--sites", "8", "--sizes", "1,2,"], "--sizes must be whole numbers with commas between them, got '1,2,'"),
        (["--sites", "8", "--seeds", "a"], "--seeds must be whole numbers with commas between them, got 'a'"),
        (["--sites", "8", "--attacks", "cba,"], "attacks = '' is not known; there are cba, "),
        (
            ["--sites", "8", "--set", "traning.lr=1"],
            "traning is not a setting of a rehearsal; did you mean 'training'?",
        ),
        (["--sites", "8", "--data", "nowhere:data"], "dataset 'nowhere:data' cannot be used: "),
        (["missing.toml"], "missing.toml cannot be read: No such file or directory"),
        (["broken.toml"], "broken.toml is not a TOML file: "),
        (["."], ". cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_rehearsed_is_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("sites = \n", encoding="utf-8")
    code, _, errors = call("rehearse", *arguments, "--out", "o")
    assert code == 2
    assert errors.count("\n") == 1
    assert errors.startswith(f"snowball: {sentence}")
    assert not (tmp_path / "o").exists()


def test_a_killed_rehearsal_continues(call: Call, tmp_path: Path) -> None:
    command = ["rehearse", "--sites", "5", "--rounds", "3", *TINY, "--out", str(tmp_path)]
    started = subprocess.Popen([sys.executable, "-m", "snowball", *command], stdout=subprocess.DEVNULL)
    deadline = monotonic() + 60
    while not list(tmp_path.glob("*/rounds.jsonl")) and monotonic() < deadline:
        sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    code, output, _ = call(*command, "--json")
    assert code == 0
    assert {cell["word"] for cell in json.loads(output)["cells"]} <= {"holds", "fails", "says nothing"}
