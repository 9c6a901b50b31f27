"""Stores the records of sweeps in benchmarks/results/paper, one file per sweep, and restores their folders.

    python -m benchmarks.tables.keep pack runs/cpu
    python -m benchmarks.tables.keep unpack runs/kept

`pack` takes the shipped grids that were run there and their finished runs. It drops facts and maps unless a figure
shows them, rounds numbers to six digits, and replaces what was stored before. `unpack` writes the folders that
`snowball report` reads.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.files import shorten_numbers
from benchmarks.tables.packed import PAPER, pack_sweeps, unpack_sweeps
from snowball.records.files import read_json, write_json
from snowball.records.rounds import RoundRecord
from snowball.records.run import SUMMARY, RunFolder
from snowball.records.sweep import locate_manifest, read_manifest, write_manifest
from snowball.report import read_sweeps
from snowball.report.figures import select_shown_facts
from snowball.sweeps.grid import describe_grids


def keep_sweeps(source: Path, target: Path = PAPER) -> int:
    """Pack the records that the tables and figures need, and return the number of runs."""
    with TemporaryDirectory() as folder:
        copy_sweeps(source, Path(folder))
        return pack_sweeps(Path(folder), target)


def copy_sweeps(source: Path, target: Path) -> None:
    """Copy the shipped grids and their finished runs."""
    shipped = describe_grids()
    sweeps = [sweep for sweep in read_sweeps([source])[0] if sweep.name in shipped]
    if not sweeps:
        sys.exit(f"{source} holds no runs of shipped grids")
    shown: dict[Path, set[int]] = defaultdict(set)
    for sweep in sweeps:
        for run in sweep.runs:
            if run.state == "finished":
                shown[run.folder] |= {sweep.figure["round"]} if sweep.figure and "round" in sweep.figure else set()
    for sweep in sweeps:
        write_manifest(target, read_manifest(locate_manifest(sweep.folder, sweep.name)))
    for folder, rounds in shown.items():
        copy_run(RunFolder.open(folder), target / folder.name, rounds)


def copy_run(run: RunFolder, target: Path, shown: set[int]) -> None:
    """Copy a run without the dropped parts."""
    kept = RunFolder.create(target, run.run)
    for record in run.read_rounds():
        kept.append(shorten_round(record, shown))
    write_json(target / SUMMARY, read_json(run.path / SUMMARY))


def shorten_round(record: RoundRecord, shown: set[int]) -> RoundRecord:
    """Drop a round's map and facts, except those that figures show."""
    is_shown = record["round"] in shown
    kept = {name: value for name, value in record.items() if name != "facts" and (is_shown or name != "map")}
    facts = select_shown_facts(record) if is_shown else {}
    return {name: shorten_numbers(value) for name, value in (kept | ({"facts": facts} if facts else {})).items()}


def main() -> None:
    """Pack or unpack."""
    parser = argparse.ArgumentParser(description="Keep the records of sweeps in one file per sweep.")
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("folder", type=Path, help="where the sweeps are, or where to unpack them")
    options = parser.parse_args()
    if options.action == "pack":
        print(f"{keep_sweeps(options.folder)} runs are in {PAPER}")
    else:
        print(f"the sweeps are in {unpack_sweeps(options.folder)}")


if __name__ == "__main__":
    main()
