"""The example in NVFlare's real simulator: a server and three sites, each in a process."""

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

pytestmark = pytest.mark.slow

JOB = Path(__file__).parents[3] / "examples" / "nvflare" / "job.py"
PATIENCE = 1500.0  # seconds for a run, which takes one minute on two idle cores


def run(folder: Path, *options: str) -> tuple[str, Path]:
    """Run the example, and return its output and its server's folder; end every process that it started."""
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, JOB, "--workspace", folder, *options],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=folder,
            start_new_session=True,
        )
    try:
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        stop(process, folder)
    return log.read_text(), folder / "guarded" / "server" / "simulate_job"


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
    saved = torch.load(next(server.rglob("FL_global_model.pt")), weights_only=True)
    return all(torch.isfinite(tensor).all() for tensor in saved["model"].values())


def test_the_recipe_with_a_site_that_sends_nan(tmp_path: Path) -> None:
    said, server = run(tmp_path)
    assert "Finished FedAvg." in said
    rounds = entries(server)
    assert [(entry["round"], entry["outcome"]) for entry in rounds] == [(1, "aggregated"), (2, "aggregated")]
    for entry in rounds:
        assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [("site-3", "not-finite")]
        assert entry["averaged"] == ["site-1", "site-2"]
    assert rounds[0]["model_after"] == rounds[1]["model_before"] != rounds[1]["model_after"]
    assert is_finite(server)
    assert (server / "guard.safetensors").exists()


def test_the_controller_with_a_site_that_fails(tmp_path: Path) -> None:
    _, server = run(tmp_path, "--controller", "--behaviour", "fail", "--rounds", "1")
    (entry,) = entries(server)
    assert sorted(entry["asked"]) == ["site-1", "site-2", "site-3"]
    assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [("site-3", "error")]
    assert entry["averaged"] == ["site-1", "site-2"]
    assert is_finite(server)
