"""Runs Flower apps in Flower's simulation: a SuperLink of one's own, and `flwr run`."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from snowball.errors import RunError
from snowball.records.drafts import temporary_folder
from snowball.sim.engines.ray_cluster import RAY_ENVIRONMENT

Config = Mapping[str, str | int | float]

MAX_START_SECONDS = 300.0
"""Time until a SuperLink must accept connections."""

STOP_SECONDS = 30.0
"""Time that a program has to end after it was told to."""

POLL_SECONDS = 0.3

PR_SET_PDEATHSIG = 1
"""Linux's option that sends a process a signal when its parent dies, even if the parent is killed."""

ENVIRONMENT = {
    **RAY_ENVIRONMENT,
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Environment variables of Flower's processes, which also keep them from using the network."""

libc = ctypes.CDLL(None)


class SimulationLink:
    """A SuperLink with the simulation engine, on the loopback address; its files and processes end with it.

    Attributes:
        folder: its folder, which only this user can read.
        workers: the number of clients that train at a time; a Ray cluster in RAY_ADDRESS knows its own.
    """

    def __init__(self, workers: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.workers, self.more = workers, environment or {}

    def __enter__(self) -> Self:
        self.temporary = temporary_folder()
        self.folder, self.port = self.temporary.__enter__(), find_free_port()
        scripts = sysconfig.get_path("scripts")
        path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
        cluster = os.environ.get("RAY_ADDRESS", "local")  # not a cluster that Ray finds on this machine
        own = {"PATH": path, "FLWR_HOME": str(self.folder), "RAY_ADDRESS": cluster}
        self.environment = {**os.environ, **ENVIRONMENT, **own, **self.more}
        connection = f'[superlink.simulation]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.folder / "config.toml").write_text(f'[superlink]\ndefault = "simulation"\n{connection}')
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        log = self.folder / "superlink.log"
        self.process = self._start(log, "flower-superlink", "--insecure", "--simulation", *where)
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the SuperLink; Flower's other processes end with it."""
        stop_process(self.process)
        self.temporary.__exit__(None, None, None)

    def start_app(self, app: Path, nodes: int, config: Config, log: Path) -> subprocess.Popen[bytes]:
        """Start an app on some simulated SuperNodes, one core each; the process ends with it, its output is the log."""
        cores = "" if self.workers is None or "RAY_ADDRESS" in os.environ else f" init-args-num-cpus={self.workers}"
        size = f"num-supernodes={nodes} client-resources-num-cpus=1 client-resources-num-gpus=0{cores}"
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        words = ["run", str(app), "simulation", "--stream", "--federation-config", size]
        return self._start(log, "flwr", *words, *(["--run-config", settings] if settings else []))

    def run_app(self, app: Path, nodes: int, config: Config, log: Path) -> None:
        """Run an app until it ends."""
        process = self.start_app(app, nodes, config, log)
        try:
            if process.wait():
                raise RunError(f"the run failed in Flower, see {log}: {read_last_line(log)}")
        finally:
            stop_process(process)

    def _start(self, log: Path, program: str, *words: str) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(
                [Path(sysconfig.get_path("scripts")) / program, *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the others
                preexec_fn=end_with_parent,
            )

    def _wait_until_ready(self) -> None:
        end = monotonic() + MAX_START_SECONDS
        while monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.port)):
                    return
            sleep(POLL_SECONDS)
        raise RunError(f"Flower's SuperLink does not start: {read_last_line(self.folder / 'superlink.log')}")


def end_with_parent() -> None:
    """Ask Linux to end this process when the thread that started it dies: a killed run leaves nothing behind."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a process, and kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def find_free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def read_last_line(log: Path) -> str:
    """Return the last line of a log that has words, without a frame around it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return next((line.strip(" │") for line in reversed(lines) if any(map(str.isalpha, line))), "it says nothing")
