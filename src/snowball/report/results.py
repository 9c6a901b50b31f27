"""Results as data: one CSV file with a row per finished run, which results from other machines can be merged into.

A row has all settings of its run and their hash, so a merged file can be checked without the runs.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records.checks import is_between
from snowball.records.fading import MAX_ROUNDS
from snowball.records.files import explain_os_errors, parse_json, write_bytes
from snowball.records.run import RunFolder
from snowball.records.run_names import hash_settings
from snowball.records.summary import MAX_SECONDS
from snowball.records.sweep import COORDINATES
from snowball.report.run_metrics import METRICS, read_run_metrics
from snowball.report.runs import note_faults
from snowball.settings import flatten_settings

FORMAT = "snowball-results/1"
"""The format and its version, in every row."""

IDENTITY = ("settings_hash", "data", "machine", "versions", "commit")
"""The fields of a measurement: two rows with the same ones must have the same numbers."""

OBJECTS = ("settings", "data", "machine", "versions")
"""The fields that are JSON objects, as in a run's folder."""

NAMES = ("format", "run", "settings_hash", *COORDINATES, "commit", "started")
"""The fields that are short texts; those named by a path repeat the settings."""

TIMES = tuple(name for name, metric in METRICS.items() if metric.timed)
HIGHEST = {"%": 1, "s": MAX_SECONDS, "rounds": MAX_ROUNDS}
"""The highest number of a metric, by its unit."""

FIELDS = (*NAMES, *METRICS, *OBJECTS)
"""The columns of the file. A metric is a fraction, in seconds or in rounds; it is empty if nothing was measured."""

HARMLESS_NAME = re.compile(r"(?![=+@-])[\w .:+/@-]*")
"""Short texts that no spreadsheet takes for a formula and no terminal for a command."""

MAX_FILE_BYTES = 1 << 28
"""Larger files are refused."""

MAX_CELL_CHARS = 1 << 20
"""Longer cells are refused."""


@dataclass(frozen=True)
class Result:
    """A finished run: its texts and its metrics by the names of the columns."""

    texts: Mapping[str, str]
    metrics: Mapping[str, float]

    @property
    def identity(self) -> tuple[str, ...]:
        """What was measured, and where."""
        return tuple(self.texts[name] for name in IDENTITY)


def collect_results(folders: Iterable[RunFolder], faults: list[str]) -> list[Result]:
    """Collect the results of the finished runs in these folders; a run that cannot be read is a fault."""
    results = []
    for folder in folders:
        with note_faults(faults):
            _, metrics = read_run_metrics(folder.path, timed=True)
            if metrics is not None:
                results.append(describe_result(folder, metrics))
    return results


def describe_result(folder: RunFolder, metrics: Mapping[str, float]) -> Result:
    """Describe a run with its settings, its metrics, and where they were measured."""
    run, settings = folder.run, folder.run["settings"]
    names = {
        "format": FORMAT,
        "run": clean_name(folder.path.resolve().name),
        "settings_hash": hash_settings(settings),
        **read_coordinates(settings),
        "commit": run.get("commit") or "",
        "started": run.get("started") or "",
    }
    objects = {name: json.dumps(run.get(name) or {}, sort_keys=True) for name in OBJECTS}
    return Result(names | objects, metrics)


def clean_name(name: str) -> str:
    """Return a folder's name without characters that a file of results may not have in a name."""
    return re.sub(r"[^\w .:+/@-]", "_", name).lstrip("+@-")


def read_coordinates(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that every table of runs needs: data set, attack, defense and seed."""
    flat = flatten_settings(settings)
    return {path: str(flat.get(path, "")) for path in COORDINATES}


def merge_results(results: Iterable[Result]) -> list[Result]:
    """Return every measurement once, in an order that does not depend on theirs; refuse contradictory ones."""
    merged: dict[tuple[str, ...], Result] = {}
    for result in results:
        known = merged.setdefault(result.identity, result)
        for name in METRICS:
            ours, theirs = known.metrics.get(name), result.metrics.get(name)
            if ours != theirs and name not in TIMES:
                raise RunError(
                    f"{result.texts['run']} was measured twice on the same machine and commit, and its {name} is "
                    f"{ours} and {theirs}: keep one of the two"
                )
    return sorted(merged.values(), key=lambda result: (result.texts["run"], result.identity))


def format_results(results: Sequence[Result]) -> str:
    """Format results as CSV; numbers keep all their digits."""
    file = StringIO()
    writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
    writer.writeheader()
    for result in results:
        writer.writerow({**result.texts, **{name: repr(number) for name, number in result.metrics.items()}})
    return file.getvalue()


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write results to a file, whole or not at all."""
    write_bytes(path, format_results(results).encode())


def read_results(path: Path) -> list[Result]:
    """Read results, and refuse a file with a row that is not a run's result or whose settings were changed."""
    with explain_os_errors(path):
        if path.stat().st_size > MAX_FILE_BYTES:
            raise RunError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB, which no file of results has")
        content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not a file of results: {error}") from error
    return list(parse_results(text, str(path)))


def parse_results(text: str, where: str) -> Iterator[Result]:
    """Yield the results in a CSV text; errors name `where` it comes from."""
    before = csv.field_size_limit(MAX_CELL_CHARS)
    try:
        reader = csv.DictReader(StringIO(text, newline=""), strict=True)
        if tuple(reader.fieldnames or ()) != FIELDS:
            raise RunError(f"{where} is not a file of results: its columns are not those of {FORMAT}")
        for row in reader:
            yield parse_result(row, f"line {reader.line_num} of {where}")
    except csv.Error as error:
        raise RunError(f"{where} is not a file of results: {error}") from error
    finally:
        csv.field_size_limit(before)


def parse_result(row: Mapping[str | None, Any], where: str) -> Result:
    """Parse a row of a file of results."""
    if None in row or None in row.values():
        raise RunError(f"{where} has more or fewer cells than columns")
    if row["format"] != FORMAT:
        raise RunError(f"{where} has the format {row['format'][:40]!r}, and this version reads {FORMAT}")
    for name in NAMES:
        if not HARMLESS_NAME.fullmatch(row[name]):
            raise RunError(f"{where} has a {name} with characters that no {name} has: {row[name][:40]!r}")
    refuse_changed_settings(row, where)
    return Result(
        {name: row[name] for name in (*NAMES, *OBJECTS)},
        {name: parse_number(name, row[name], where) for name in METRICS if row[name]},
    )


def refuse_changed_settings(row: Mapping[str | None, Any], where: str) -> None:
    """Refuse a row whose settings are not those of its hash and of its columns."""
    objects = {name: parse_json(row[name].encode(), f"{name} in {where}") for name in OBJECTS}
    for name, value in objects.items():
        if not isinstance(value, dict):
            raise RunError(f"{where} has no JSON object in {name}")
    expected = {"settings_hash": hash_settings(objects["settings"]), **read_coordinates(objects["settings"])}
    for name, value in expected.items():
        if row[name] != value:
            raise RunError(f"{where} says {name} = {row[name][:40]!r}, and its settings say {value[:40]!r}")


def parse_number(name: str, text: str, where: str) -> float:
    """Parse a metric: a fraction, seconds, or a number of rounds."""
    highest = HIGHEST[METRICS[name].unit]
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not is_between(number, highest):
        raise RunError(f"{where} has a {name} of {text[:40]!r}; a number from 0 to {highest} was expected")
    return number
