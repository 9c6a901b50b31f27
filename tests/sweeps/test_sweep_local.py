"""Sweeps on this machine: real runs in separate processes, stopped in every possible way."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_grids import FINE, IMPOSSIBLE, REFUSED, block

from snowball.records.lock import LOCK_FILE, exclusive_lock
from snowball.records.run import RunFolder
from snowball.sim.engines.forkserver import start_forkserver
from snowball.sim.run import is_finished, run_experiment
from snowball.sweeps.executors.local import LocalExecutor, leave_with_parent, start_job
from snowball.sweeps.grid import PlannedRun, read_grid

TITLE = "# Some runs of seconds\n"
SEEDS = FINE + "seed = [1, 2]\n"
TIMEOUT_SECONDS = 120.0


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    """A grid of four runs."""
    return written(tmp_path, TITLE + block(SEEDS, 3))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """The same with one run before them that is refused."""
    return written(tmp_path, TITLE + block(IMPOSSIBLE, 3) + block(SEEDS, 3))


def written(folder: Path, text: str) -> Path:
    file = folder / "tiny.toml"
    file.write_text(text, encoding="utf-8")
    return file


def timeless(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The records of all runs in a folder, without their seconds."""
    runs = {file.parent.name: RunFolder.open(file.parent).read_rounds() for file in sorted(out.glob("*/run.json"))}
    return {name: [{**record, "seconds": None} for record in records] for name, records in runs.items()}


def expected(grid: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """The same of runs one after the other in this process."""
    for planned in read_grid(grid).runs:
        list(run_experiment(planned.experiment, out / planned.name))
    return timeless(out)


def test_runs_side_by_side_are_those_one_after_the_other(fine: Path, tmp_path: Path) -> None:
    runs = read_grid(fine).runs
    events = list(LocalExecutor(2)(runs, tmp_path / "out"))
    assert sorted(each.run.name for each in events if each.ended) == sorted(planned.name for planned in runs)
    assert not any(each.fault for each in events)
    first = [each for each in events if each.run == runs[0]]
    assert [each.round for each in first] == [0, 1, 2, 3, 3, 3]  # that it started, its rounds, that it is done, the end
    assert [each.pace > 0 for each in first] == [False, True, True, True, False, False]
    assert timeless(tmp_path / "out") == expected(fine, tmp_path / "serial")


def test_no_more_are_played_at_a_time_than_asked_for(fine: Path, tmp_path: Path) -> None:
    events = list(LocalExecutor(1)(read_grid(fine).runs, tmp_path))
    turns = [each.run.name for each in events]
    assert turns == sorted(turns, key=turns.index)
    assert len(set(turns)) == 4


def test_a_run_that_is_refused_lets_the_others_go_on(mixed: Path, tmp_path: Path) -> None:
    runs = read_grid(mixed).runs
    events = [each for each in LocalExecutor(2)(runs, tmp_path / "out") if each.ended]
    assert {each.run.name: each.fault for each in events if each.fault} == {runs[0].name: REFUSED}
    assert all(is_finished(tmp_path / "out" / planned.name, planned.experiment) for planned in runs[1:])


def first_of(grid: Path) -> PlannedRun:
    return read_grid(grid).runs[0]


def test_a_process_that_is_killed_is_a_sentence(fine: Path, tmp_path: Path) -> None:
    job = start_job(first_of(fine), tmp_path)
    assert not job.receive().ended
    os.kill(job.process.pid or 0, signal.SIGKILL)
    while not (event := job.receive()).ended:
        pass
    job.connection.close()
    assert event.fault == (
        f"its process was killed by signal 9 after round {event.round} of 3; is there enough memory for so many jobs?"
    )


def test_a_fault_nobody_foresaw_is_a_sentence_with_its_kind(fine: Path, tmp_path: Path) -> None:
    planned = first_of(fine)
    RunFolder.create(tmp_path / planned.name, {"settings": planned.experiment.dump_settings()})
    (tmp_path / planned.name / "checkpoint").write_text("no folder", encoding="utf-8")
    *_, last = LocalExecutor(1)([planned], tmp_path)
    assert last.ended
    assert last.fault.startswith("FileExistsError: [Errno 17] File exists: ")


def test_a_process_ends_with_its_parent_even_in_a_long_round() -> None:
    context = start_forkserver()
    ours, theirs = context.Pipe()
    process = context.Process(target=leave_with_parent, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    ours.close()
    process.join(TIMEOUT_SECONDS)
    assert process.exitcode == 1


def test_closing_leaves_nobody_behind(fine: Path, tmp_path: Path) -> None:
    runs = read_grid(fine).runs
    running = LocalExecutor(2)(runs, tmp_path)
    next(each for each in running if each.round)  # a run says that it starts before it takes the lock
    assert holders(tmp_path)
    running.close()
    assert not holders(tmp_path)


def holders(out: Path) -> list[int]:
    """The processes that have a sweep's lock open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == out / LOCK_FILE:
                found.append(int(link.parts[2]))
        except OSError:
            continue
    return found


# From here on the command itself.

Call = Callable[..., tuple[int, str, str]]


def test_a_sweep_says_what_came_of_it_and_tries_again_when_asked(call: Call, mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, output, errors = call("sweep", mixed, "--out", out, "--jobs", "2")
    assert (code, errors) == (1, "")
    lines = output.splitlines()
    assert lines[0] == "Some runs of seconds: 0 runs are done, 5 to do"
    assert len(lines) == 1 + 5 + 2  # one a run and not one a round
    assert sum(" in its best round" in line for line in lines) == 4
    (failure,) = (line for line in lines if " failed: " in line)
    assert failure.endswith(f": {REFUSED}")
    assert lines[-2:] == [
        f"4 of 5 runs are in {out}",
        f"1 failed; {out / 'failed.json'} says why; --retry runs them again",
    ]
    assert list(json.loads((out / "failed.json").read_text(encoding="utf-8")).values()) == [REFUSED]

    before = {file: file.stat().st_mtime_ns for file in out.rglob("rounds.jsonl")}
    code, output, _ = call("sweep", mixed, "--out", out)
    assert code == 1
    assert output.startswith(
        "Some runs of seconds: 4 runs are done, 1 failed before (--retry runs them again), 0 to do\n"
    )
    code, output, _ = call("sweep", mixed, "--out", out, "--retry")
    assert code == 1
    assert output.count(REFUSED) == 1
    assert before == {file: file.stat().st_mtime_ns for file in out.rglob("rounds.jsonl")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cpu/tabel1"], "snowball: 'cpu/tabel1' is neither a grid nor a file; did you mean 'cpu/table1'?"),
        (["cpu/table1", "--address", "here:1"], "snowball: --address here:1 needs --engine ray, not local"),
    ],
)
def test_a_fault_is_one_line_and_exit_code_2(call: Call, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    assert call("sweep", *arguments, "--out", tmp_path / "out") == (2, "", f"{sentence}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        ('published = "lable-skew"', "asks for published numbers 'lable-skew'; did you mean 'label-skew'?"),
        (
            '[table]\nrows = ["defense.name"]\ncolumns = []\nvalues = ["main_acuracy"]',
            "has a table of 'main_acuracy', which is not a metric; did you mean 'main_accuracy'?",
        ),
        ('[figure]\nkind = "pie"', "figure.kind is one of lines, heat, bars, curves, scatter, distances, got 'pie'"),
        ('[figure]\nkind = "bars"\nx = "defense.nmae"', "goes by defense.nmae, which no run of the sweep says"),
    ],
)
def test_what_no_report_could_show_is_refused_before_anything_is_played(
    call: Call, tmp_path: Path, shown: str, sentence: str
) -> None:
    (tmp_path / "mine.toml").write_text(f"{shown}\n{block()}", encoding="utf-8")
    code, _, errors = call("sweep", tmp_path / "mine.toml", "--out", tmp_path / "out")
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.strip().endswith(sentence)
    assert not (tmp_path / "out").exists()


def test_without_ray_one_sentence_says_what_to_install(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "snowball.sweeps.executors.ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    _, _, errors = call("sweep", "cpu/updates", "--engine", "ray", "--out", tmp_path)
    assert errors == "snowball: --engine ray needs Ray: pip install 'ray>=2.55'\n"


def test_grids_are_listed(call: Call) -> None:
    code, output, _ = call("list", "grids")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()][:2] == ["paper/curves", "paper/distances"]
    assert any(line.startswith("cpu/table1 ") and "label skew" in line for line in output.splitlines())


def test_a_terminal_gets_a_bar(call: Call, fine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, output, _ = call("sweep", fine, "--out", tmp_path / "out")
    assert code == 0
    assert "━" in output
    assert " left" in output


# Sweeps that are stopped.


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `snowball sweep` in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def command(grid: Path, out: Path) -> subprocess.Popen[str]:
        arguments = [Path(sys.executable).with_name("snowball"), "sweep", grid, "--out", out, "--jobs", "2"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(arguments, text=True, start_new_session=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield command
    for process in started:
        process.kill()
        process.communicate()


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_mid_run(out: Path) -> bool:
    return any(not (file.parent / "summary.json").exists() for file in out.glob("*/rounds.jsonl"))


@pytest.fixture
def longer(tmp_path: Path) -> Path:
    """A grid of runs that last long enough to be stopped."""
    return written(tmp_path, block(FINE + "seed = [1]\n", 6))


def test_killed_without_warning_a_sweep_goes_on_to_the_same_records(
    longer: Path, tmp_path: Path, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "out"
    killed = begin(longer, out)
    wait_until(lambda: in_mid_run(out))
    killed.kill()
    killed.communicate()
    assert any(len(records) < 6 for records in timeless(out).values())
    again = begin(longer, out)  # at once, while runs of the first may still be there
    _, errors = again.communicate(timeout=TIMEOUT_SECONDS)
    assert (again.returncode, errors) == (0, "")
    assert timeless(out) == expected(longer, tmp_path / "whole")
    assert not (out / "failed.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_fifty_times_a_sweep_goes_on_to_the_same_records(
    longer: Path, tmp_path: Path, begin: Callable[..., subprocess.Popen[str]], seed: int
) -> None:
    rng, out, kills = random.Random(seed), tmp_path / "out", 0
    for _ in range(5):
        killed = begin(longer, out)
        time.sleep(rng.uniform(1, 6))
        kills += killed.poll() is None
        killed.kill()
        killed.communicate()
    assert kills
    again = begin(longer, out)
    _, errors = again.communicate(timeout=TIMEOUT_SECONDS)
    assert (again.returncode, errors) == (0, "")
    assert timeless(out) == expected(longer, tmp_path / "whole")
    assert not (out / "failed.json").exists()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_stopped_a_sweep_says_how_it_goes_on_and_leaves_nobody_behind(
    longer: Path, tmp_path: Path, begin: Callable[..., subprocess.Popen[str]], stop: signal.Signals
) -> None:
    out = tmp_path / "out"
    stopped = begin(longer, out)
    wait_until(lambda: in_mid_run(out))
    if stop == signal.SIGINT:
        os.killpg(stopped.pid, stop)  # a terminal sends it to the whole group
    else:
        stopped.send_signal(stop)
    _, errors = stopped.communicate(timeout=TIMEOUT_SECONDS)
    assert stopped.returncode == 128 + stop
    assert errors == f"stopped; run the same command to continue; the runs so far are in {out}\n"
    assert not holders(out)
    assert not (out / "failed.json").exists()


def test_a_second_sweep_into_the_same_folder_is_refused(
    fine: Path, tmp_path: Path, begin: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "out"
    with exclusive_lock(out, "sweep"):
        second = begin(fine, out)
        _, errors = second.communicate(timeout=TIMEOUT_SECONDS)
    assert second.returncode == 2
    assert errors.startswith(f"snowball: another sweep (process {os.getpid()} on {socket.gethostname()}, since ")
    assert errors.endswith(f") is using {out}: wait until it ends, or choose another folder\n")
    assert [file.name for file in out.iterdir()] == [LOCK_FILE]
