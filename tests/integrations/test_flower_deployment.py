"""The example app on Flower's engines, for real: SuperLink, SuperNodes and apps in processes of their own."""

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
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="Flower's engines need flwr >= 1.41: `make test-flower` has it")

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
PATIENCE = 600.0  # seconds until something that should have happened has not
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
BACKDOOR, NAN, SLOW = 0, 1, 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A program and all that it starts."""

    def __init__(self, log: Path, environment: dict[str, str], *command: str | Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.popen = subprocess.Popen(
                [BIN / command[0], *map(str, command[1:])],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )

    def said(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.log.read_text(errors="replace"))

    def says(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until it has said something so many times."""
        end = time.monotonic() + PATIENCE
        while len(found := self.said(pattern)) < times:
            assert self.popen.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < end, f"{pattern!r} is not in {self.log} after {PATIENCE:.0f} s"
            time.sleep(0.3)
        return found

    def wait(self) -> int:
        return self.popen.wait(PATIENCE)

    def stop(self) -> None:
        """Ask it to end, as an operator does."""
        self.popen.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End it and all that it started, at once."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.popen.wait(30)


class Laboratory:
    """A SuperLink on the loopback address, what is connected to it, and the app's runs."""

    def __init__(self, folder: Path, keys: Path | None = None) -> None:
        self.folder, self.keys, self.processes = folder, keys, []
        self.address = f"127.0.0.1:{free_port()}"
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "home"), "PATH": path}
        trust = f'root-certificates = "{keys}/ca.crt"' if keys else "insecure = true"
        (folder / "home").mkdir()
        connection = f'[superlink.laboratory]\naddress = "{self.address}"\n{trust}\n'
        (folder / "home" / "config.toml").write_text(f'[superlink]\ndefault = "laboratory"\n{connection}')

    def start(self, name: str, *command: str | Path) -> Process:
        log = self.folder / f"{len(self.processes)}-{name}.log"
        self.processes.append(Process(log, self.environment, *command))
        return self.processes[-1]

    def superlink(self, *options: str | Path) -> Process:
        host, port = self.address.split(":")
        link = self.start("superlink", "flower-superlink", "--host", host, "--port", port, *options)
        link.says("Uvicorn running")
        return link

    def supernode(self, client: int, clients: int, *options: str | Path) -> Process:
        place = f"partition-id={client} num-partitions={clients}"
        where = ("--superlink", self.address, "--port", str(free_port()), "--node-config", place)
        return self.start(f"supernode-{client}", "flower-supernode", *where, *options)

    def run(self, out: Path, federation: str | None = None, **config: Any) -> Process:
        """Start a run of the app, whose files go to a folder."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in {**config, "out": str(out)}.items())
        simulated = ("--federation-config", federation) if federation else ()
        return self.start("run", "flwr", "run", APP, "laboratory", "--stream", "--run-config", settings, *simulated)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    laboratory = Laboratory(tmp_path)
    try:
        yield laboratory
    finally:
        laboratory.close()


def identity(node: Process) -> str:
    """The id that a SuperNode has got."""
    return node.says(r"SuperNode ID: (\d+)")[-1]


def audit(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]


def last_accuracy(out: Path) -> dict[str, float]:
    last: dict[str, float] = json.loads((out / "accuracy.jsonl").read_text().splitlines()[-1])
    return last


def test_six_sites_one_of_them_backdoored_and_one_broken(laboratory: Laboratory, tmp_path: Path) -> None:
    """Multi-Krum, which tolerates one of the five that can be read and averages three."""
    laboratory.superlink("--insecure")
    nodes = [laboratory.supernode(client, 6, "--insecure") for client in range(6)]
    ids = [identity(node) for node in nodes]
    out = tmp_path / "out"
    run = laboratory.run(out, rounds=2, backdoor=str(BACKDOOR), nan=str(NAN))
    assert run.wait() == 0, run.log.read_text()
    entries = audit(out)
    assert [(entry["round"], entry["outcome"]) for entry in entries] == [(1, "aggregated"), (2, "aggregated")]
    for entry in entries:
        assert sorted(entry["asked"]) == sorted(entry["answered"]) == sorted(ids)
        assert [(fault["client"], fault["reason"]) for fault in entry["dropped"]] == [(ids[NAN], "not-finite")]
        assert ids[BACKDOOR] in entry["left_out"]
        assert len(entry["averaged"]) == 3
        assert set(entry["averaged"]) <= {ids[client] for client in range(6) if client not in (BACKDOOR, NAN)}
    assert all(torch.isfinite(tensor).all() for tensor in load_file(out / "model.safetensors").values())
    assert last_accuracy(out)["main_accuracy"] > 0.7
    assert last_accuracy(out)["backdoor_accuracy"] < 0.2

    slow, again = nodes[SLOW], tmp_path / "again"
    before = len(slow.said("Start `flwr-clientapp`"))
    run = laboratory.run(again, rounds=1, backdoor="", nan=str(NAN), slow=str(SLOW), timeout=300.0)
    slow.says("Start `flwr-clientapp`", before + 1)
    slow.kill()
    assert run.wait() == 0, run.log.read_text()
    (entry,) = audit(again)
    assert entry["outcome"] == "aggregated"
    assert ids[SLOW] in {*entry["silent"], *(fault["client"] for fault in entry["dropped"])}
    assert ids[SLOW] not in entry["averaged"]


def test_with_tls_and_keys_a_restarted_site_keeps_its_id(tmp_path: Path) -> None:
    keys, out = tmp_path / "keys", tmp_path / "out"
    subprocess.run([sys.executable, APP / "certificates.py", keys, "2"], check=True, timeout=60)
    laboratory = Laboratory(tmp_path, keys)
    tls = (
        "--ssl-ca-certfile",
        keys / "ca.crt",
        "--ssl-certfile",
        keys / "server.pem",
        "--ssl-keyfile",
        keys / "server.key",
    )

    def join(client: int) -> Process:
        key = ("--auth-supernode-private-key", keys / f"supernode-{client}")
        return laboratory.supernode(client, 2, "--root-certificates", keys / "ca.crt", *key)

    def one_round() -> None:
        settings = {"nodes": 2, "defense": "none", "backdoor": "", "nan": "", "examples": 100}
        run = laboratory.run(out, rounds=1, **settings)
        assert run.wait() == 0, run.log.read_text()

    try:
        laboratory.superlink(*tls, "--enable-supernode-auth")
        for client in range(2):
            register = laboratory.start("register", "flwr", "supernode", "register", keys / f"supernode-{client}.pub")
            assert register.wait() == 0, register.log.read_text()
        nodes = [join(client) for client in range(2)]
        ids = [identity(node) for node in nodes]
        one_round()
        nodes[0].stop()
        assert identity(join(0)) == ids[0]
        one_round()
        first, second = audit(out)
        assert (first["round"], second["round"]) == (1, 2)
        assert sorted(first["averaged"]) == sorted(second["averaged"]) == sorted(ids)
    finally:
        laboratory.close()


def test_the_app_runs_on_the_simulation_engine(laboratory: Laboratory, tmp_path: Path) -> None:
    laboratory.superlink("--insecure", "--simulation")
    settings = {"nodes": 12, "defense": "snowball", "backdoor": "0,1", "nan": "2", "examples": 100}
    run = laboratory.run(tmp_path / "out", "num-supernodes=12 client-resources-num-cpus=1", rounds=1, **settings)
    assert run.wait() == 0, run.log.read_text()
    (entry,) = audit(tmp_path / "out")
    assert (len(entry["asked"]), len(entry["answered"])) == (12, 12)
    assert [fault["reason"] for fault in entry["dropped"]] == ["not-finite"]
    assert entry["outcome"] == "aggregated"
