"""SIGTERM and SIGHUP stop a command as Ctrl-C does: workers end, locks are released, and what is on disk stays."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.records.run import RunFolder

SETTINGS = (
    "rounds=500",
    "cohort=3",
    "data.clients=4",
    "data.examples=100",
    "training.epochs=1",
    "attack.name=none",
    "defense.name=fedavg",
)
GRID = """
[[grid]]
preset = ["demo"]
set.rounds = 500
set.cohort = 3
set.data.clients = 4
set.data.examples = 100
set.attack.name = "none"
set.defense.name = "fedavg"
[grid.axes]
seed = [1, 2, 3]
"""
REHEARSAL = ("--sites", "5", "--rounds", "500", "--attacks", "cba", "--defenses", "fedavg")
TIMEOUT_SECONDS = 120.0


def start(*words: str | Path, **options: object) -> subprocess.Popen[str]:
    """Start `snowball` in a process group of its own."""
    command = [Path(sys.executable).with_name("snowball"), *words]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen(command, **{**pipes, **options})  # type: ignore[call-overload, no-any-return]


def start_run(folder: Path, *options: str, **more: object) -> subprocess.Popen[str]:
    changes = [part for setting in SETTINGS for part in ("--set", setting)]
    return start("run", "demo", *changes, "--out", folder, *options, **more)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_rounds(folder: Path) -> bool:
    return any(b"\n" in file.read_bytes() for file in folder.rglob("rounds.jsonl"))


def list_members(group: int) -> list[str]:
    """Return the living processes of a group."""
    listed = subprocess.run(["ps", "-o", "stat=,pid=", "-g", str(group)], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]


def check_stopped(process: subprocess.Popen[str], number: signal.Signals, sentence: str) -> None:
    """Check the exit code, the one sentence, and that no process is left."""
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 128 + number, errors
    assert errors == sentence
    wait_until(lambda: not list_members(process.pid))


def check_resumable(folder: Path) -> None:
    """Check that the lock is free, and that the run continues behind its last checkpoint."""
    done = len(RunFolder.open(folder).read_rounds())
    again = start_run(folder, "--resume", "--engine", "serial", stdout=subprocess.PIPE)
    assert again.stdout
    line = again.stdout.readline()
    again.kill()
    again.communicate()
    assert line.startswith(
        (f"round {done + 1} of 500: ", f"round {done} of 500: ")
    )  # the checkpoint follows the record


def test_sigterm_stops_a_run_and_all_of_its_workers(tmp_path: Path) -> None:
    process = start_run(tmp_path, "--workers", "2")
    wait_until(lambda: has_rounds(tmp_path))
    process.terminate()
    again = "resume with the same command plus --resume"
    check_stopped(process, signal.SIGTERM, f"stopped; {again}; the rounds so far are in {tmp_path}\n")
    assert RunFolder.open(tmp_path).read_rounds()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_signal_to_the_whole_group_stops_a_run(tmp_path: Path, number: signal.Signals, engine: str) -> None:
    process = start_run(tmp_path, "--engine", engine)
    wait_until(lambda: has_rounds(tmp_path))
    os.killpg(process.pid, number)
    again = "resume with the same command plus --resume"
    check_stopped(process, number, f"stopped; {again}; the rounds so far are in {tmp_path}\n")
    check_resumable(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_demos_sweeps_and_rehearsals(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "grid.toml").write_text(GRID, encoding="utf-8")
    commands = {
        "demo": ("resume with the same command; the rounds so far are in {}/fedavg", ()),
        "sweep": ("run the same command to continue; the runs so far are in {}", (tmp_path / "grid.toml",)),
        "rehearse": ("run the same command to continue; the runs so far are in {}", REHEARSAL),
    }
    for command, (sentence, options) in commands.items():
        out = tmp_path / command
        process = start(command, *options, "--out", out)
        wait_until(lambda out=out: has_rounds(out))  # type: ignore[misc]
        process.send_signal(number)
        check_stopped(process, number, f"stopped; {sentence.format(out)}\n")
        assert not (out / "failed.json").exists()


@pytest.mark.slow
def test_a_run_under_nohup_survives_a_closing_terminal(tmp_path: Path) -> None:
    process = start_run(tmp_path, "--workers", "1", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: has_rounds(tmp_path))
    os.killpg(process.pid, signal.SIGHUP)
    done = len(RunFolder.open(tmp_path).read_rounds())
    wait_until(lambda: len(RunFolder.open(tmp_path).read_rounds()) > done + 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130


@pytest.mark.slow
def test_a_run_ends_with_its_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start_run(tmp_path, "--workers", "2", stdout=theirs, stderr=theirs)
    os.close(theirs)
    wait_until(lambda: has_rounds(tmp_path))
    process.send_signal(signal.SIGSTOP)
    os.close(ours)  # what is printed from now on fails
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGCONT)  # as a closing terminal does
    assert process.wait(TIMEOUT_SECONDS) == 129
    wait_until(lambda: not list_members(process.pid))
    check_resumable(tmp_path)
