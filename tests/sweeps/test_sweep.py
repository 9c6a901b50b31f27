import json
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from socket import socket

import pytest
from tiny_grids import FINE, block

from snowball.errors import RunError
from snowball.records import lock
from snowball.records.lock import exclusive_lock, shared_lock
from snowball.records.sweep import read_manifest
from snowball.sim.engines.ray_cluster import require_cluster
from snowball.sim.run import run_experiment
from snowball.sweeps.grid import Grid, PlannedRun, read_grid
from snowball.sweeps.progress import Estimate
from snowball.sweeps.sweep import JobEvent, describe_failure, prepare_sweep, run_sweep

SEEDS = FINE + "seed = [1, 2]\n"


class Pretending:
    """Plays nothing: runs of some defenses fail, the others write what makes a run finished."""

    def __init__(self, *failing: str) -> None:
        self.jobs, self.failing = 1, failing
        self.played: list[str] = []
        self.closed = False

    def __call__(self, runs: Sequence[PlannedRun], folder: Path) -> Generator[JobEvent]:
        try:
            for each in runs:
                self.played.append(each.name)
                yield JobEvent(each, 1, 1.0)
                fault = "it could not" if each.experiment.defense.name in self.failing else ""
                if not fault:
                    list(run_experiment(each.experiment, folder / each.name))
                yield JobEvent(each, 2, 1.0, True, fault)
        finally:
            self.closed = True


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    (tmp_path / "tiny.toml").write_text(block(SEEDS), encoding="utf-8")
    return read_grid(tmp_path / "tiny.toml")


def failed(folder: Path) -> dict[str, str]:
    return dict(json.loads((folder / "failed.json").read_text(encoding="utf-8")))


def test_the_manifest_is_there_before_anything_is_played(grid: Grid, tmp_path: Path) -> None:
    plan = prepare_sweep(grid, tmp_path / "out")
    assert read_manifest(tmp_path / "out" / "sweeps" / "tiny.json") == grid.manifest()
    assert [each.name for each in plan.waiting] == [each.name for each in grid.runs]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sweeps"]


def test_what_takes_long_waits_at_the_head_of_the_queue(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(f'first = ["krum"]\n{block(SEEDS)}', encoding="utf-8")
    plan = prepare_sweep(read_grid(tmp_path / "tiny.toml"), tmp_path / "out")
    assert [each.experiment.defense.name for each in plan.waiting] == ["krum", "krum", "fedavg", "fedavg"]


def test_a_shipped_grid_s_manifest_has_one_name(tmp_path: Path) -> None:
    prepare_sweep(read_grid("cpu/updates"), tmp_path)
    assert [path.name for path in (tmp_path / "sweeps").iterdir()] == ["cpu-updates.json"]


def test_what_failed_is_written_down_skipped_and_tried_again_when_asked(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "failed.json").write_text('{"of another grid": "long ago"}', encoding="utf-8")
    names = [each.name for each in grid.runs]
    list(run_sweep(prepare_sweep(grid, tmp_path), tmp_path, Pretending("krum")))
    sentences = {"of another grid": "long ago", names[2]: "it could not", names[3]: "it could not"}
    assert failed(tmp_path) == sentences

    plan = prepare_sweep(grid, tmp_path)
    assert [each.name for each in plan.done] == names[:2]
    assert [each.name for each in plan.skipped] == names[2:]
    assert not plan.waiting

    retried = prepare_sweep(grid, tmp_path, retry=True)
    assert [each.name for each in retried.waiting] == names[2:]
    events = run_sweep(retried, tmp_path, Pretending())
    while not next(events).ended:
        assert failed(tmp_path) == sentences  # a retry that is stopped has not succeeded
    assert failed(tmp_path) == {"of another grid": "long ago", names[3]: "it could not"}
    list(events)
    assert failed(tmp_path) == {"of another grid": "long ago"}
    assert len(prepare_sweep(grid, tmp_path).done) == 4


def test_where_nothing_failed_nothing_is_said(grid: Grid, tmp_path: Path) -> None:
    list(run_sweep(prepare_sweep(grid, tmp_path), tmp_path, Pretending()))
    assert not (tmp_path / "failed.json").exists()


def test_a_run_that_succeeded_elsewhere_has_not_failed(grid: Grid, tmp_path: Path) -> None:
    first = grid.runs[0]
    (tmp_path / "failed.json").write_text(json.dumps({first.name: "once"}), encoding="utf-8")
    list(run_experiment(first.experiment, tmp_path / first.name))
    plan = prepare_sweep(grid, tmp_path)
    assert (plan.done, plan.skipped, plan.failed) == ((first,), (), {})
    assert failed(tmp_path) == {}


def test_closing_a_sweep_stops_the_player(grid: Grid, tmp_path: Path) -> None:
    play = Pretending()
    events = run_sweep(prepare_sweep(grid, tmp_path), tmp_path, play)
    next(events)
    events.close()
    assert play.closed
    assert play.played == [grid.runs[0].name]


def test_a_folder_that_holds_another_run_or_none_to_be_read_has_failed_and_the_others_go_on(
    grid: Grid, tmp_path: Path
) -> None:
    one, other, torn, last = grid.runs
    list(run_experiment(other.experiment, tmp_path / one.name))
    (tmp_path / torn.name).mkdir()
    (tmp_path / torn.name / "run.json").write_text('{"sett', encoding="utf-8")
    plan = prepare_sweep(grid, tmp_path)
    assert (plan.skipped, plan.waiting) == ((one, torn), (other, last))
    list(run_sweep(plan, tmp_path, Pretending()))
    assert set(failed(tmp_path)) == {one.name, torn.name}
    assert f"{one.name} was started with seed = 2, not 1: " in failed(tmp_path)[one.name]
    assert "run.json is not valid JSON" in failed(tmp_path)[torn.name]


def test_a_run_whose_summary_is_of_another_version_gets_a_new_one(grid: Grid, tmp_path: Path) -> None:
    first = grid.runs[0]
    list(run_experiment(first.experiment, tmp_path / first.name))
    summary = (tmp_path / first.name / "summary.json").read_bytes()
    (tmp_path / first.name / "summary.json").write_text("{}", encoding="utf-8")
    assert first in prepare_sweep(grid, tmp_path).waiting
    assert list(run_experiment(first.experiment, tmp_path / first.name, resume=True)) == []
    assert (tmp_path / first.name / "summary.json").read_bytes() == summary
    assert first in prepare_sweep(grid, tmp_path).done


@pytest.mark.parametrize("content", ["[]", '{"a": 1}'])
def test_a_list_of_failures_that_is_none_is_refused(grid: Grid, tmp_path: Path, content: str) -> None:
    (tmp_path / "failed.json").write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=r"failed\.json must hold one sentence per failed run: move it away"):
        prepare_sweep(grid, tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "sweeps").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="sweeps cannot be used: File exists"):
        prepare_sweep(grid, tmp_path)


def test_a_fault_nobody_foresaw_is_one_line_with_its_kind() -> None:
    assert describe_failure(RunError("it is so")) == "it is so"
    assert describe_failure(ValueError("two\n  lines")) == "ValueError: two lines"


def test_two_sweeps_in_a_folder_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "TIMEOUT_SECONDS", 0.0)
    with exclusive_lock(tmp_path, "sweep"):
        with (
            pytest.raises(
                RunError, match=rf"^another sweep \(process {os.getpid()} on .+, since .+\) is using {tmp_path}: wait"
            ),
            exclusive_lock(tmp_path, "sweep"),
        ):
            pass
        with exclusive_lock(tmp_path / "elsewhere", "sweep"):
            pass
    with exclusive_lock(tmp_path, "sweep"):
        pass


def test_a_run_that_outlives_its_sweep_keeps_the_next_one_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "TIMEOUT_SECONDS", 0.0)
    with ExitStack() as stack:
        with exclusive_lock(tmp_path, "sweep"):
            for _ in range(2):
                stack.enter_context(shared_lock(tmp_path))
        with (
            pytest.raises(RunError, match=r"^another (sweep .+|run or sweep) is using"),
            exclusive_lock(tmp_path, "sweep"),
        ):
            pass
    with exclusive_lock(tmp_path, "sweep"):
        pass


def test_a_run_does_not_begin_in_a_folder_that_another_sweep_has_taken(tmp_path: Path) -> None:
    with lock.open_lock(tmp_path) as file, ExitStack() as stack:
        assert lock.try_lock(file, lock.fcntl.LOCK_EX)
        with pytest.raises(RunError, match=r"^another (sweep .+|run or sweep) is using"):
            stack.enter_context(shared_lock(tmp_path))


def test_the_time_that_is_left_follows_the_rounds_of_each_kind(grid: Grid) -> None:
    fedavg, _, krum, _ = grid.runs
    estimate = Estimate(grid.runs)
    assert (estimate.rounds, estimate.seconds(2)) == (8, None)
    estimate.update(JobEvent(fedavg, 1, 3.0))
    assert estimate.seconds(1) == 7 * 3.0  # nothing is known of the other kind
    estimate.update(JobEvent(krum, 1, 4.0))
    assert estimate.seconds(1) == 3 * 3.0 + 3 * 4.0
    assert estimate.seconds(2) == (3 * 3.0 + 3 * 4.0) / 2
    assert estimate.seconds(100) == 2 * 4.0  # of the run of the slow kind that has not begun
    estimate.update(JobEvent(krum, 1, 0.0, True, "it could not"))
    assert estimate.seconds(1) == 3 * 3.0 + 2 * 4.0
    assert (estimate.ended, estimate.failed) == (1, 1)


def test_a_kind_without_a_finished_round_lasts_as_others_on_the_same_data(tmp_path: Path) -> None:
    text = f'[[grid]]\npreset = ["demo", "cpu/mnist"]\nset = {{ rounds = 2 }}\n{FINE}'
    (tmp_path / "two.toml").write_text(text, encoding="utf-8")
    runs = read_grid(tmp_path / "two.toml").runs
    estimate = Estimate(runs)
    slow, _, *quick = sorted(runs, key=lambda planned: planned.experiment.data.name == "mnist")
    estimate.update(JobEvent(slow, 1, 10.0))
    for each in quick:
        estimate.update(JobEvent(each, 1, 1.0))
    assert estimate.seconds(1) == 3 * 10.0 + 2 * 1.0


def test_the_address_of_a_cluster_that_does_not_answer_is_refused() -> None:
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RunError, match=rf"^--address {address} is not a Ray cluster: "):
            require_cluster(address, f"--address {address}")
        listening.listen()
        require_cluster(address, "it answers")


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://nowhere:10001"])
def test_other_forms_of_an_address_are_rays_to_read(address: str) -> None:
    require_cluster(address, "it is not looked at")
