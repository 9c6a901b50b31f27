"""The example in NVFlare's real simulator: a server and eight sites, each in a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="NVFlare's simulator needs nvflare >= 2.9: `make test-nvflare` has it")

from readme_commands import find_command

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "nvflare"
README = EXAMPLE / "README.md"
SITES = {f"site-{number}" for number in range(1, 9)}
HOSTILE = "site-6"
PATIENCE = 400.0  # seconds for a run, which takes half a minute on two idle cores
TRIES = 2  # the simulator hung for good once, and in none of fourteen runs that tried to repeat it


def run(folder: Path, command: list[str], rounds: int) -> str:
    """Run a command of the README in a folder, and return its output; one that hangs is ended and tried again."""
    logs = []
    for _ in range(TRIES):
        code, log = try_run(folder, command, rounds)
        if code is not None:
            assert code == 0, log
            return log
        logs.append(log)
    pytest.fail("every try hung:\n" + "\n".join(logs))


def try_run(folder: Path, command: list[str], rounds: int) -> tuple[int | None, str]:
    """Return a command's exit code, or None if it hangs, and its output; end every process that it started."""
    log = folder / "log"
    _, script, *options = command
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, EXAMPLE / script, *options, "--rounds", str(rounds)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=folder,
            start_new_session=True,
        )
    try:
        return process.wait(PATIENCE), log.read_text()
    except subprocess.TimeoutExpired:
        return None, log.read_text()
    finally:
        stop(process, folder)


def stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End the example and its sites, which have their own sessions and name the workspace."""
    listing = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    left = [int(line.split()[0]) for line in listing.splitlines() if str(folder) in line and "simulator" in line]
    for pid in {process.pid, *left}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(30)


def entries(server: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (server / "audit.jsonl").read_text().splitlines()]


def is_finite(server: Path) -> bool:
    saved = torch.load(server / "app_server" / "FL_global_model.pt", weights_only=True)
    return all(torch.isfinite(tensor).all() for tensor in saved["model"].values())


def test_the_commands_of_the_readme_leave_hostile_sites_out_and_both_audits_stay(tmp_path: Path) -> None:
    audited = tmp_path / find_command(README, "snowball audit runs")[2]
    said = run(tmp_path, find_command(README, "python job.py"), rounds=2)
    server = audited.parent
    assert "Finished FedAvg." in said
    assert f"{server}: {{'main_accuracy': 0." in said
    rounds = entries(server)
    assert [(entry["round"], entry["outcome"]) for entry in rounds] == [(1, "aggregated"), (2, "aggregated")]
    for entry in rounds:
        assert (entry["defense"], set(entry["answered"])) == ("snowball-plus", SITES)
        assert (entry["suspects"], set(entry["averaged"])) == ([HOSTILE], SITES - {HOSTILE})
    assert rounds[0]["model_after"] == rounds[1]["model_before"] != rounds[1]["model_after"]
    assert is_finite(server)
    assert (server / "guard.safetensors").exists()

    before = audited.read_bytes()
    run(tmp_path, find_command(README, "python job.py --controller"), rounds=2)
    assert audited.read_bytes() == before
    (second,) = set((tmp_path / "runs" / "nvflare").glob("*/server/simulate_job")) - {server}
    for entry in entries(second):
        assert set(entry["asked"]) == SITES
        assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [(HOSTILE, "error")]
        assert set(entry["averaged"]) == SITES - {HOSTILE}
    assert len(entries(second)) == 2
    assert is_finite(second)
