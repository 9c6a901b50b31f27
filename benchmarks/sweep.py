"""How busy a sweep keeps the cores: 24 runs of the demo, side by side.

    python benchmarks/sweep.py > benchmarks/results/sweep.json      (a quarter of an hour on two cores)

`busy_share` is the processor time of the sweep and of all that it started over that of all cores while it ran;
`machine_busy_share` counts whatever else ran meanwhile, too.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Any

from machine import describe
from snowball.sim.grid import read_grid
from snowball.sim.processes import cores

GRID = """# 24 runs of the demo
[[grid]]
preset = "demo"
[grid.axes]
"defense.name" = ["snowball", "krum", "flame", "fedavg"]
"attack.name" = ["cba", "dba"]
seed = [1, 2, 3]
"""
STATISTICS = Path("/proc/stat")
ADOPT_ORPHANS = 36  # prctl's number


def measure(grid: str = GRID) -> dict[str, Any]:
    """Sweep through a grid, and say how busy that kept the machine."""
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)  # processes outlive who started them, and count where they are awaited
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "grid.toml"
        file.write_text(grid, encoding="utf-8")
        command = [sys.executable, "-m", "snowball", "sweep", str(file), "--out", f"{folder}/runs"]
        used, (busy, spent), started = processor_seconds(), ticks(), perf_counter()
        subprocess.run(command, check=True, stdout=sys.stderr)
        seconds, (busy_after, spent_after) = perf_counter() - started, ticks()
        used = processor_seconds() - used
        runs = len(read_grid(file).runs)
    return {
        "machine": describe(),
        "runs": runs,
        "jobs": cores(),
        "seconds": seconds,
        "processor_seconds": used,
        "busy_share": used / (seconds * cores()),
        "machine_busy_share": (busy_after - busy) / (spent_after - spent),
    }


def processor_seconds() -> float:
    """What all processes took that this one started or adopted, and that have ended."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ticks() -> tuple[int, int]:
    """Time of all cores since the machine started: busy, and in all."""
    user, nice, system, idle, waiting, *rest = map(int, STATISTICS.read_text().split("\n")[0].split()[1:9])
    busy = user + nice + system + sum(rest)
    return busy, busy + idle + waiting


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
