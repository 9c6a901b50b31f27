"""Describes the machine that a benchmark runs on, and measures memory."""

import os
import platform
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import TracebackType

PROCESSORS = Path("/proc/cpuinfo")
STATUS = Path("/proc/self/status")
SAMPLE_SECONDS = 0.002


def describe_machine() -> dict[str, str | int]:
    """Return the machine and the versions that affect a time."""
    packages = {name: version(name) for name in ("torch", "numpy", "scikit-learn")}
    return {"cpu": read_processor_name(), "cores": os.cpu_count() or 1, "python": platform.python_version(), **packages}


def read_processor_name() -> str:
    """Return the processor's name, as the system reports it."""
    lines = PROCESSORS.read_text().splitlines() if PROCESSORS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def measure_own_memory() -> dict[str, float]:
    """Return this process's memory in MiB: private (`RssAnon`) and with mapped files (`VmRSS`); empty off Linux."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS") if name in fields}


def measure_family_memory() -> float:
    """Return the MiB of this process and its descendants, shared memory counted once; zero off Linux."""
    if not STATUS.exists():
        return 0.0
    parents = {int(entry.name): find_parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(map(measure_proportional_memory, ours))


def find_parent(process: Path) -> int:
    """Return the id of a process's parent, or 0 if the process has ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def measure_proportional_memory(pid: int) -> float:
    """Return the MiB that a process holds, including its part of shared memory."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


class PeakMemory:
    """Watches how far this process's memory grows while a block runs.

    Attributes:
        growth: the largest growth in MiB since the start, by the name of each reading.
    """

    def __init__(
        self, read: Callable[[], dict[str, float]] = measure_own_memory, sample_seconds: float = SAMPLE_SECONDS
    ) -> None:
        self.growth: dict[str, float] = {}
        self._read, self._pause = read, sample_seconds
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._start = self._read()
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._watch.join()

    @property
    def peak(self) -> dict[str, float]:
        """The highest readings so far."""
        return {name: self._start[name] + grown for name, grown in self.growth.items()}

    def _sample(self) -> None:
        done = False
        while not done:
            done = self._done.wait(self._pause)  # once more after the block, to see what it left behind
            for name, now in self._read().items():
                self.growth[name] = max(self.growth.get(name, 0.0), now - self._start[name])
