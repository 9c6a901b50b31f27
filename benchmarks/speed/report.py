"""Measures how long a report on 100 runs takes, and how large its page is.

    python -m benchmarks.speed.report runs/cpu > benchmarks/results/report.json

From a folder of sweeps it takes the finished runs with the largest records: Snowball's, with all the evidence of their
elections. `seconds` is the time of the whole command, `snowball report --paper --html`, including its start;
`records_mb` and `page_mb` are millions of bytes.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring.machine import describe_machine
from snowball.records.run import ROUNDS, SUMMARY

RUNS = 100


def measure_report(source: Path, most: int = RUNS) -> dict[str, Any]:
    """Report on the runs with the largest records."""
    finished = (folder for folder in source.iterdir() if (folder / SUMMARY).is_file())
    runs = sorted(finished, key=lambda folder: (folder / ROUNDS).stat().st_size, reverse=True)[:most]
    with tempfile.TemporaryDirectory() as scratch:
        page, chosen = Path(scratch) / "page.html", Path(scratch) / "runs"
        for folder in (*runs, source / "sweeps"):
            shutil.copytree(folder, chosen / folder.name, ignore=shutil.ignore_patterns("checkpoint"))
        command = [sys.executable, "-m", "snowball", "report", str(chosen), "--paper", "--html", str(page)]
        started = perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = perf_counter() - started
        records = sum((chosen / folder.name / ROUNDS).stat().st_size for folder in runs)
        sizes = {"records_mb": records / 1e6, "page_mb": page.stat().st_size / 1e6}
    return {"machine": describe_machine(), "runs": len(runs), "seconds": seconds, **sizes}


if __name__ == "__main__":
    print(json.dumps(measure_report(Path(sys.argv[1])), indent=1))
