"""Keeps the records of sweeps small enough to be part of the repository.

    python -m benchmarks.tables.keep runs/cpu benchmarks/results/paper

Takes the shipped grids that were played there and their finished runs, without facts and maps but for those that a
figure shows of a round; numbers have six digits. What the folder held before goes.
"""

import shutil
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.files import shorten_numbers
from snowball.records.files import read_json, write_json
from snowball.records.rounds import RoundRecord
from snowball.records.run import SUMMARY, RunFolder
from snowball.records.sweep import locate_manifest, read_manifest, write_manifest
from snowball.report import read_sweeps
from snowball.report.figures import select_shown_facts
from snowball.sweeps.grid import describe_grids


def keep(source: Path, target: Path) -> int:
    """Copy what the reports need; the number of runs."""
    shipped = describe_grids()
    sweeps = [sweep for sweep in read_sweeps([source])[0] if sweep.name in shipped]
    if not sweeps or source.resolve() == target.resolve():
        sys.exit(f"{source} holds no runs of shipped grids, or is {target} itself")
    shown: dict[Path, set[int]] = defaultdict(set)
    for sweep in sweeps:
        for run in sweep.runs:
            if run.state == "finished":
                shown[run.folder] |= {sweep.figure["round"]} if sweep.figure and "round" in sweep.figure else set()
    if target.exists():
        shutil.rmtree(target)
    for sweep in sweeps:
        write_manifest(target, read_manifest(locate_manifest(sweep.folder, sweep.name)))
    for folder, rounds in shown.items():
        copy(RunFolder.open(folder), target / folder.name, rounds)
    return len(shown)


def copy(run: RunFolder, target: Path, shown: set[int]) -> None:
    """Write a run anew, without what is left out."""
    kept = RunFolder.create(target, run.run)
    for record in run.rounds():
        kept.append(lean(record, shown))
    write_json(target / SUMMARY, read_json(run.path / SUMMARY))


def lean(record: RoundRecord, shown: set[int]) -> RoundRecord:
    """A round without its map and its facts, but for what figures show of it."""
    is_shown = record["round"] in shown
    kept = {name: value for name, value in record.items() if name != "facts" and (is_shown or name != "map")}
    facts = select_shown_facts(record) if is_shown else {}
    return {name: shorten_numbers(value) for name, value in (kept | ({"facts": facts} if facts else {})).items()}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    print(f"{keep(source, target)} runs are in {target}")
