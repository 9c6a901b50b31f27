"""Runs Flower apps in Flower's simulation, with `flwr run` and a SuperLink of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Self

from benchmarks.files import ROOT
from snowball.errors import RunError

BIN = Path(sys.executable).parent
MAX_START_SECONDS = 300.0
"""Time until a SuperLink accepts connections."""

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


def find_free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class SuperLink:
    """A SuperLink with the simulation engine, on the loopback address, whose files vanish with it."""

    def __enter__(self) -> Self:
        self.home = TemporaryDirectory(ignore_cleanup_errors=True)
        self.port = find_free_port()
        paths = {"PATH": BIN, "PYTHONPATH": ROOT}
        joined = {name: os.pathsep.join([str(path), os.environ.get(name, "")]) for name, path in paths.items()}
        self.environment = {**os.environ, **ENVIRONMENT, **joined, "FLWR_HOME": self.home.name}
        connection = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        text = f'[superlink]\ndefault = "simulation"\n[superlink.simulation]\n{connection}'
        (Path(self.home.name) / "config.toml").write_text(text, encoding="utf-8")
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.process = self._start(
            Path(self.home.name) / "log", "flower-superlink", "--insecure", "--simulation", *where
        )
        self._wait_until_ready()
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        self.home.cleanup()

    def run_app(self, app: Path, nodes: int, config: Mapping[str, str | int | float], log: Path) -> None:
        """Run an app on some simulated SuperNodes, one core each, until it ends; its output goes to a log."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        size = f"num-supernodes={nodes} client-resources-num-cpus=1"
        words = ("run", str(app), "simulation", "--stream", "--federation-config", size, "--run-config", settings)
        if self._start(log, "flwr", *words).wait():
            raise RunError(f"the run failed in Flower: see {log}")

    def _start(self, log: Path, program: str, *words: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True}
            return subprocess.Popen([BIN / program, *words], env=self.environment, cwd=self.home.name, **streams)

    def _wait_until_ready(self) -> None:
        end = monotonic() + MAX_START_SECONDS
        while monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.port)):
                    return
            sleep(0.3)
        raise RunError("Flower's SuperLink does not start")
