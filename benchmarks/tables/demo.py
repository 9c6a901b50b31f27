"""Makes what the documentation shows of `snowball demo`: the table of three seeds, and the picture of the first.

    python -m benchmarks.tables.demo runs

Runs that the folder already holds are not repeated. The picture is the report of seed 1 in headless Chromium. It
carries the numbers that it shows as text, so that a test can compare them with the table.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from benchmarks.files import RESULTS, ROOT
from benchmarks.tables import pages
from snowball.cli.runs import DEMO_DEFENSES
from snowball.records.run import RunFolder

SEEDS = (1, 2, 3)

PICTURE = ROOT / "docs" / "demo.png"
PICTURE_SIZE = "1280,1356"
NUMBERS = "Snowball demo"
"""The name of the text in the picture."""


def run_demo(seed: int, folder: Path) -> list[dict[str, Any]]:
    """Run the demo with a seed, unless the folder holds it, and return the summary of each defense."""
    subprocess.run([sys.executable, "-m", "snowball", "demo", "--seed", str(seed), "--out", folder], check=True)
    return [{"seed": seed, "defense": defense, **read_summary(folder / defense)} for defense in DEMO_DEFENSES]


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a run as plain JSON."""
    summary = RunFolder.open(folder).read_summary()
    assert summary is not None
    return summary.plain()


def select_shown(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the picture shows of each run of seed 1; times differ every time."""
    shown = ("defense", "best", "last", "false_positive_rate", "false_negative_rate")
    return [{name: run[name] for name in shown} for run in runs if run["seed"] == 1]


def draw_picture(report: Path, runs: list[dict[str, Any]], picture: Path) -> None:
    """Take a picture of a report, and write the numbers of its runs into the file."""
    numbers = PngInfo()
    numbers.add_text(NUMBERS, json.dumps(select_shown(runs)))
    with tempfile.TemporaryDirectory() as scratch:
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")
        drawn = "--virtual-time-budget=10000"
        where = (f"--user-data-dir={scratch}", f"--window-size={PICTURE_SIZE}", f"--screenshot={scratch}/page.png")
        subprocess.run(["chromium", *quiet, drawn, *where, report.absolute().as_uri()], check=True, capture_output=True)
        Image.open(f"{scratch}/page.png").convert("RGB").save(picture, pnginfo=numbers, optimize=True)


def main(folder: Path) -> None:
    """Run the demo, and write its result, its picture and the tables."""
    runs = [run for seed in SEEDS for run in run_demo(seed, folder / f"demo-{seed}")]
    (RESULTS / "demo.json").write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    draw_picture(folder / "demo-1" / "report.html", runs, PICTURE)
    pages.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
