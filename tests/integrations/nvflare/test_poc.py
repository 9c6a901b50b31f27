"""The example on a real provisioned federation: a server and three sites with certificates."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="NVFlare's servers need nvflare >= 2.9: `make test-nvflare` has it")

pytestmark = pytest.mark.slow

JOB = Path(__file__).parents[3] / "examples" / "nvflare" / "job.py"
BIN = Path(sys.executable).parent
SITES = ["site-1", "site-2", "site-3"]
SETTINGS = ("--rounds", "2", "--sizes", "600,600,600", "--hostile", "3", "--defense", "fedavg")  # two replies are left
PATIENCE = 600.0  # seconds until something that should have happened has not
ROUND = 60  # seconds for the sites that live, which take some ten on two idle cores
PROJECT = """
api_version: 3
name: laboratory
participants:
  - {{name: localhost, type: server, org: lab, fed_learn_port: {}, admin_port: {}}}
  - {{name: site-1, type: client, org: lab}}
  - {{name: site-2, type: client, org: lab}}
  - {{name: site-3, type: client, org: lab}}
  - {{name: admin@lab.org, type: admin, org: lab, role: project_admin}}
builders:
  - {{path: nvflare.lighter.impl.workspace.WorkspaceBuilder, args: {{template_file: [master_template.yml]}}}}
  - {{path: nvflare.lighter.impl.static_file.StaticFileBuilder, args: {{config_folder: config}}}}
  - {{path: nvflare.lighter.impl.cert.CertBuilder}}
  - {{path: nvflare.lighter.impl.signature.SignatureBuilder}}
"""


def free_ports() -> list[int]:
    """Return two different ports."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return [first.getsockname()[1], second.getsockname()[1]]


def read(path: Path) -> str:
    """Return a file's text, empty if its process has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


class Laboratory:
    """A provisioned federation on the loopback address, and its administrator's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kits = folder, folder / "laboratory" / "prod_00"
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "HOME": str(folder), "PATH": path, "OMP_NUM_THREADS": "1"}
        (folder / "project.yml").write_text(PROJECT.format(*free_ports()))
        self.run(BIN / "nvflare", "provision", "-p", "project.yml", "-w", folder)
        resources = self.kits / "localhost" / "local" / "resources.json.default"
        own = resources.read_text().replace("/tmp/nvflare", str(folder / "store"))  # or all servers of a host share it
        resources.with_suffix("").write_text(own)
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str | Path) -> str:
        """Run a command and return its output."""
        options = {"cwd": self.folder, "env": self.environment, "timeout": PATIENCE}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        """Start the server and the sites, and wait until they have found each other."""
        for name in ("localhost", *SITES):
            with (self.folder / f"{name}.log").open("wb") as log:
                command = [self.kits / name / "startup" / "sub_start.sh", "--once"]
                places = {"cwd": self.folder, "env": self.environment, "stdout": log, "stderr": subprocess.STDOUT}
                self.started.append(subprocess.Popen(command, start_new_session=True, **places))
        self.until(lambda: "Total clients: 3" in (self.folder / "localhost.log").read_text(errors="replace"))

    def until(self, happened: Any) -> None:
        """Wait for something."""
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, (self.folder / "localhost.log").read_text(errors="replace")[-5000:]
            time.sleep(0.5)

    def admin(self, *command: str | Path) -> str:
        return self.run(BIN / "nvflare", "job", *command, "--startup-kit", self.kits / "admin@lab.org")

    def submit(self, name: str, *options: str) -> str:
        """Submit the example's job and return its id."""
        self.run(sys.executable, JOB, *SETTINGS, *options, "--name", name, "--write", self.folder / "jobs")
        (job,) = re.findall(r"job_id: *(\S+)", self.admin("submit", "-j", self.folder / "jobs" / name))
        return job

    def processes(self, *words: str) -> list[int]:
        """Return this federation's processes whose command lines contain some words; each job has its own session."""
        lines = {path.parent.name: read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
        found = (pid for pid, line in lines.items() if all(word in line for word in (str(self.kits), *words)))
        return [int(pid) for pid in found]

    def kill(self, *words: str) -> None:
        for pid in self.processes(*words):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    new = Laboratory(tmp_path_factory.mktemp("federation"))
    try:
        new.start()
        yield new
    finally:
        new.kill()
        for process in new.started:
            process.wait(30)


def entries(folder: Path) -> list[dict[str, Any]]:
    file = folder / "audit.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_hostile_site_is_dropped_under_its_own_name_and_the_audit_is_in_the_jobs_result(
    laboratory: Laboratory,
) -> None:
    job = laboratory.submit("recipe", "--behaviour", "nan")
    assert "FINISHED:COMPLETED" in laboratory.admin("wait", job) + laboratory.admin("list")
    laboratory.admin("download", job, "-o", laboratory.folder / "results")
    result = laboratory.folder / "results" / job / "workspace"
    rounds = entries(result)
    assert [(entry["round"], entry["outcome"]) for entry in rounds] == [(1, "aggregated"), (2, "aggregated")]
    for entry in rounds:
        assert sorted(entry["answered"]) == SITES
        assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [("site-3", "not-finite")]
        assert entry["averaged"] == ["site-1", "site-2"]
    saved = torch.load(result / "app_server" / "FL_global_model.pt", weights_only=True)
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())


def test_a_site_that_dies_in_a_round_is_silent_and_the_controllers_run_goes_on(laboratory: Laboratory) -> None:
    job = laboratory.submit("controller", "--controller", "--behaviour", "hang", "--timeout", str(ROUND))
    laboratory.until(lambda: laboratory.processes("site-3", job))
    time.sleep(5)  # the site is at work, or about to be
    laboratory.kill("site-3")
    run = laboratory.kits / "localhost" / job
    laboratory.until(lambda: len(entries(run)) == 2)
    for entry in entries(run):
        assert sorted(entry["asked"]) == SITES
        assert (entry["silent"], entry["averaged"]) == (["site-3"], ["site-1", "site-2"])
        assert entry["outcome"] == "aggregated"
