"""Measures how busy a sweep keeps the cores: 24 runs of the demo, side by side.

    python -m benchmarks.speed.sweep > benchmarks/results/sweep.json      (a quarter of an hour on two idle cores)

`busy_share` is the processor time of the sweep and all its processes, divided by that of all cores while it ran.
`waiting_share` is the time in which its processes were ready to run but had no core, because other programs used them
or because there were more processes than cores. On an otherwise idle machine the first counts, elsewhere their sum.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, sleep
from typing import Any

from benchmarks.measuring.machine import describe_machine
from snowball.sim.engines.processes import count_cores
from snowball.sweeps.grid import read_grid

GRID = """# 24 runs of the demo
[[grid]]
preset = "demo"
[grid.axes]
"defense.name" = ["snowball", "krum", "flame", "fedavg"]
"attack.name" = ["cba", "dba"]
seed = [1, 2, 3]
"""
ADOPT_ORPHANS = 36  # prctl's PR_SET_CHILD_SUBREAPER
SAMPLE_SECONDS = 0.5


def measure_sweep(grid: str = GRID) -> dict[str, Any]:
    """Run the sweep of a grid, and return how busy it kept the cores."""
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)  # processes outlive their parents, and count where they are awaited
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "grid.toml"
        file.write_text(grid, encoding="utf-8")
        started, before = perf_counter(), count_processor_seconds()
        waited = run_sweep(file, Path(folder) / "runs")
        seconds, used = perf_counter() - started, count_processor_seconds() - before
        runs = len(read_grid(file).runs)
    shares = {"busy_share": used / (seconds * count_cores()), "waiting_share": waited / (seconds * count_cores())}
    return {"machine": describe_machine(), "runs": runs, "jobs": count_cores(), "seconds": seconds, **shares}


def run_sweep(file: Path, out: Path) -> float:
    """Run the sweep to its end, and return the seconds that its processes waited for a core."""
    command = [sys.executable, "-m", "snowball", "sweep", str(file), "--out", str(out)]
    waits: dict[str, int] = {}
    with subprocess.Popen(command, stdout=sys.stderr, start_new_session=True) as process:
        while process.poll() is None:
            sleep(SAMPLE_SECONDS)
            waits |= read_waits(process.pid)
    if process.returncode:
        raise SystemExit(f"the sweep ended with exit code {process.returncode}")
    return sum(waits.values()) / 1e9


def read_waits(session: int) -> dict[str, int]:
    """Return the nanoseconds that each process of a session has waited for a core so far."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found[process.name] = int((process / "schedstat").read_text().split()[1])
        except OSError:
            continue  # the process has ended
    return found


def count_processor_seconds() -> float:
    """Return the processor seconds of all processes that this one started or adopted, once they have ended."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print(json.dumps(measure_sweep(), indent=1))
