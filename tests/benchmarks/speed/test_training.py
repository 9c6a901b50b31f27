"""The benchmark of training: its cases, and the numbers derived from their times."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import files
from benchmarks.inputs import workloads
from benchmarks.speed import training, whole_round
from benchmarks.speed.training import PLAIN, count_bytes_of_flower, count_bytes_of_processes, list_contenders
from benchmarks.tables import speed
from snowball import cli
from snowball.sim.engines.processes import count_cores
from snowball.sim.engines.worker import MEMBER, TASK_HEADER

FACTS = {
    *("name", "seconds", "reference_seconds", "ratio", "workers", "samples_per_second", "gflops", "ratio_per_core"),
    *("parallel_efficiency", "bytes_moved", "peak_mib", "share_of_peak", "share_of_peak_beside"),
}


def bench(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli.app, ["bench", "training", *options, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check_training(cases: dict[str, dict[str, Any]], network: str) -> None:
    """Every way to train has its facts, and they agree with each other."""
    highest = cases["peak sgemm"]["gflops"]
    names = [name for name in cases if name.startswith(f"{network} ")]
    assert names == [f"{network} {name}" for name in list_contenders("cpu")]
    for name in names:
        case = cases[name]
        assert set(case) == FACTS
        assert case["reference_seconds"] == cases[f"{network} {PLAIN}"]["seconds"]
        assert case["ratio_per_core"] == pytest.approx(case["ratio"] / case["workers"])
        assert case["share_of_peak"] == pytest.approx(case["gflops"] / case["workers"] / highest)
        assert case["samples_per_second"] == pytest.approx(workloads.QUICK[network].seen / case["seconds"])
        assert (case["bytes_moved"] > 0) == name.split()[1].startswith(("processes", "flower"))
        assert (case["parallel_efficiency"] is not None) == name.split()[1].startswith("processes")
    assert cases[f"{network} processes 1"]["parallel_efficiency"] == pytest.approx(1)


def test_the_quick_run_times_every_way_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(training, "WORKLOADS", {"gru": workloads.WORKLOADS["gru"]})
    monkeypatch.setattr(whole_round, "run_cases", lambda quick: [training.make_case("round", 1.0, 2.0, quick=quick)])
    result = bench("--quick")
    assert {"cpu", "cores", "python", "torch"} <= set(result["machine"])
    cases = {case["name"]: case for case in result["cases"]}
    check_training(cases, "gru")
    assert cases["round"]["quick"] is True
    assert training.format_cases(result["cases"]).count("\n") == len(cases)


@pytest.mark.slow
def test_the_quick_run_reports_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    cases = {case["name"]: case for case in bench("--quick")["cases"]}
    for network in workloads.WORKLOADS:
        check_training(cases, network)
    for name in whole_round.KINDS:
        case = cases[name]
        assert case["reference_seconds"] == pytest.approx(sum(case["plain_seconds"].values()))
        assert ("top_down" in case["plain_seconds"]) == ("top-down" in name)
        assert case["data"] == "mnist-sample"
    assert sum(cases["rest"]["shares"].values()) == pytest.approx(1)
    assert cases["rest"]["seconds"] < cases["rest"]["round_seconds"]


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sentences = {"training": "needs a GPU, and torch ", "elections": "needs `bench training`: all else runs on the"}
    for what, sentence in sentences.items():
        monkeypatch.setattr(sys, "argv", ["snowball", "bench", what, "--quick", "--device", "cuda"])
        with pytest.raises(SystemExit, match="2"):
            cli.main()
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert sentence in said


def test_a_gpu_has_no_worker_processes() -> None:
    assert set(list_contenders("cuda")) <= {PLAIN, "serial", "vmap"}
    assert f"processes {count_cores()}" in list_contenders("cpu")


def test_processes_move_the_global_row_once_and_flower_with_every_message() -> None:
    assert count_bytes_of_processes(3, 10, settings=7) == 4 * 10 * 4 + 3 * (TASK_HEADER.size + MEMBER.size)
    assert count_bytes_of_flower(3, 10, settings=7) == 3 * (4 * 10 * 2 + 7)


def test_a_quick_round_is_the_papers_but_smaller() -> None:
    quick, whole = whole_round.make_setting(True), whole_round.make_setting(False)
    assert (whole.data.clients, whole.cohort, whole.training.epochs) == (200, 50, 5)
    assert (quick.data.clients, quick.cohort, quick.training.epochs) == (24, 12, 1)
    assert quick.defense.own["clusters"] == whole.defense.own["clusters"] == 11
    assert whole.defense.own["judge"] == "vae"


def test_what_is_made_up_is_enough_for_every_workload(tmp_path: Path) -> None:
    workloads.write_samples(tmp_path / "made")
    wanted = {workload.data: workload.clients * workload.samples for workload in workloads.WORKLOADS.values()}
    assert wanted["cifar10"] <= workloads.PHOTOGRAPHS
    assert wanted["sent140"] <= workloads.TEXTS
    assert wanted["mnist-sample"] <= 12_000
    assert {file.name for file in (tmp_path / "made").iterdir()} >= {"cifar10.npz", "glove.npz"}


def test_the_tables_of_the_documentation_are_made_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    assert speed.tabulate_training().count("\n") == 1  # nothing is measured yet
    trained: dict[str, Any] = dict.fromkeys(FACTS, 0.5) | {"name": "cnn serial", "parallel_efficiency": None}
    times = {"seconds": 2.0, "reference_seconds": 8.0, "ratio": 4.0, "one_thread_seconds": 6.0}
    whole = {"name": "round bottom-up", "data": "mnist", **times, "ratio_to_one_thread": 3.0}
    rest = {"name": "rest", "shares": {"train": 0.875, "draw": 0.125}}
    (tmp_path / "bench-training.json").write_text(json.dumps({"cases": [trained, whole, rest]}), encoding="utf-8")
    assert "| cnn serial | 0.5 | 0.5 | 0.5 | 50.0 | 50.0 | - | 0.5 | " in speed.tabulate_training()
    assert "| bottom-up | mnist | 2 | 8 | 4 | 6 | 3 |" in speed.tabulate_round()
    assert "| train | 87.5 |\n| draw | 12.5 |" in speed.tabulate_round()
