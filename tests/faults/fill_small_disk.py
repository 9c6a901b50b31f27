"""Fill a small disk ten times while a run writes to it, then let it end: `fill_small_disk.py FOLDER` as root."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from small_run import SMALL_RUN

from snowball.errors import RunError
from snowball.sim.run import run_experiment

DISK_BYTES = 1 << 20

PAGE_BYTES = 4096

MAX_FREE_PAGES = 24
"""A checkpoint takes 29."""


def fill_disk(disk: Path, left: int) -> Path:
    """Write a file that leaves this many pages of the disk."""
    ballast = disk / "ballast"
    status = os.statvfs(disk)
    ballast.write_bytes(bytes(max(0, status.f_bavail * status.f_frsize - left * PAGE_BYTES)))
    return ballast


def main(folder: Path) -> None:
    """Write the sentence of each run that found no room."""
    disk, rng = folder / "disk", random.Random(1)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", disk], check=True)
    for _ in range(10):
        running = run_experiment(SMALL_RUN, disk / "run", resume=True)
        if rng.random() < 0.3:
            next(running)
        ballast = fill_disk(disk, rng.randint(0, MAX_FREE_PAGES))
        try:
            next(running)
        except RunError as error:
            sys.stdout.write(f"{error}\n")
        ballast.unlink()
    list(run_experiment(SMALL_RUN, disk / "run", resume=True))
    shutil.copytree(disk / "run", folder / "run")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
