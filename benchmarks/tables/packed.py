"""Stores records of sweeps in one file per sweep, as in the repository.

The first line is the sweep's manifest. Every further line is a run: its name, run.json, rounds.jsonl and summary.json.
A run that several sweeps share is in the first of them. Unpacking restores the folders byte for byte.
"""

import atexit
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.files import RESULTS
from snowball.records.run import ROUNDS, RUN, SUMMARY
from snowball.records.sweep import MANIFESTS

PAPER = RESULTS / "paper"


def pack_sweeps(source: Path, target: Path) -> int:
    """Pack the sweeps of a folder into files of another, replacing all files there; return the number of runs."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    packed: set[str] = set()
    for file in sorted((source / MANIFESTS).glob("*.json")):
        manifest = _read(file)
        names = [run["folder"] for run in manifest["runs"] if (source / run["folder"] / SUMMARY).is_file()]
        new = [name for name in names if name not in packed]
        packed.update(new)
        lines = [manifest, *(_pack_run(source / name) for name in new)]
        text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
        (target / f"{file.stem}.jsonl").write_text(text, encoding="utf-8")
    return len(packed)


def _pack_run(folder: Path) -> dict[str, Any]:
    rounds = (folder / ROUNDS).read_text(encoding="utf-8").splitlines()
    files = {"run": _read(folder / RUN), "summary": _read(folder / SUMMARY)}
    return {"name": folder.name, **files, "rounds": [json.loads(line) for line in rounds]}


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def unpack_sweeps(target: Path, source: Path = PAPER) -> Path:
    """Write the packed folders, for `snowball report`, and return the folder that holds them."""
    (target / MANIFESTS).mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.jsonl")):
        manifest, *runs = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        _write(target / MANIFESTS / f"{file.stem}.json", manifest)
        for run in runs:
            folder = target / run["name"]
            folder.mkdir(exist_ok=True)
            _write(folder / RUN, run["run"])
            _write(folder / SUMMARY, run["summary"])
            rounds = "".join(f"{json.dumps(record, sort_keys=True)}\n" for record in run["rounds"])
            (folder / ROUNDS).write_text(rounds, encoding="utf-8")
    return target


def _write(file: Path, value: Any) -> None:
    file.write_text(f"{json.dumps(value, indent=2)}\n", encoding="utf-8")


def iterate_runs(source: Path = PAPER) -> Iterator[dict[str, Any]]:
    """Yield every stored run: `name`, `run`, `summary` and `rounds`."""
    for file in sorted(source.glob("*.jsonl")):
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines()[1:])


@cache
def unpack_once() -> Path:
    """Unpack the stored sweeps into a temporary folder, which lasts as long as this process."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return unpack_sweeps(folder)
