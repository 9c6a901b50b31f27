"""Starts Flower's real programs on the loopback address: SuperLink, SuperNodes and runs, each in a process."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
PATIENCE = 600.0  # seconds until something that should have happened has not
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
PORTS = iter(random.Random().sample(range(20_000, 32_000), 2_000))  # the system gives none of these to others


def find_free_port() -> int:
    """Return a port that nothing listens on, each only once."""
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no port is free")


class Process:
    """A program and the processes that it starts."""

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

    def find_in_log(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.log.read_text(errors="replace"))

    def wait_for_log(self, pattern: str, times: int = 1) -> list[str]:
        """Wait until a pattern is in the log so many times."""
        end = time.monotonic() + PATIENCE
        while len(found := self.find_in_log(pattern)) < times:
            assert self.popen.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < end, f"{pattern!r} is not in {self.log} after {PATIENCE:.0f} s"
            time.sleep(0.3)
        return found

    def wait(self) -> int:
        return self.popen.wait(PATIENCE)

    def stop(self) -> None:
        """Send SIGTERM, as an operator does."""
        self.popen.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """Kill the program and the processes that it started."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.popen.wait(30)


class Laboratory:
    """A SuperLink on the loopback address, its SuperNodes, and an app's runs."""

    def __init__(self, folder: Path, app: Path, keys: Path | None = None) -> None:
        self.folder, self.app, self.keys = folder, app, keys
        self.processes: list[Process] = []
        self.address = f"127.0.0.1:{find_free_port()}"
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

    def start_superlink(self, *options: str | Path) -> Process:
        host, port = self.address.split(":")
        link = self.start("superlink", "flower-superlink", "--host", host, "--port", port, *options)
        link.wait_for_log("Uvicorn running")
        return link

    def start_supernode(self, client: int, clients: int, *options: str | Path) -> Process:
        config = f"partition-id={client} num-partitions={clients}"
        where = ("--superlink", self.address, "--port", str(find_free_port()), "--node-config", config)
        return self.start(f"supernode-{client}", "flower-supernode", *where, *options)

    def run(self, out: Path, federation: str | None = None, **config: Any) -> Process:
        """Start a run of the app, which writes its files to `out`."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in {**config, "out": str(out)}.items())
        simulated = ("--federation-config", federation) if federation else ()
        command = ("flwr", "run", self.app, "laboratory", "--stream", "--run-config", settings)
        return self.start("run", *command, *simulated)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()


def wait_for_id(node: Process) -> str:
    """Wait for a SuperNode's id and return it."""
    return node.wait_for_log(r"SuperNode ID: (\d+)")[-1]
