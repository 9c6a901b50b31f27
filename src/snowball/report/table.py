"""The table of runs: one row a run, recomputed from its rounds, so that an unfinished run has one too."""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records import RUN, RunFolder, summarise

STAGES = ("train", "defense", "evaluate")
"""What a round's time is made of; other times of a record are parts of these."""

ABSENT = "–"  # noqa: RUF001


@dataclass(frozen=True)
class Row:
    """One run's numbers; accuracies and rates are fractions, None where there is nothing to measure."""

    name: str
    defense: str
    rounds: int
    finished: bool
    best_round: int | None
    best_main_accuracy: float | None
    best_backdoor_accuracy: float | None
    last_main_accuracy: float | None
    last_backdoor_accuracy: float | None
    false_positive_rate: float | None
    false_negative_rate: float | None
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """The row as text, a cell for each of `HEADERS`."""
        return tuple(show(self) for show in COLUMNS.values())


def percent(value: float | None) -> str:
    """A fraction as people read it."""
    return ABSENT if value is None else f"{100 * value:.1f}%"


def duration(seconds: float) -> str:
    """A time as people read it."""
    if seconds < 600:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "Run": lambda row: row.name,
    "Defense": lambda row: row.defense,
    "Rounds": lambda row: f"{row.rounds}" if row.finished else f"{row.rounds}, unfinished",
    "Best round": lambda row: ABSENT if row.best_round is None else f"{row.best_round}",
    "Main accuracy, best": lambda row: percent(row.best_main_accuracy),
    "Backdoor, that round": lambda row: percent(row.best_backdoor_accuracy),
    "Main accuracy, last": lambda row: percent(row.last_main_accuracy),
    "Backdoor, last": lambda row: percent(row.last_backdoor_accuracy),
    "Infected elected": lambda row: percent(row.false_positive_rate),
    "Benign left out": lambda row: percent(row.false_negative_rate),
    "Time": lambda row: duration(row.seconds),
}

HEADERS = tuple(COLUMNS)
"""The table's headings, in order."""


def table(folders: Sequence[RunFolder]) -> list[Row]:
    """One row a run, in the order given."""
    return [_row(name, folder) for name, folder in zip(run_names(folders), folders, strict=True)]


def markdown(rows: Iterable[Row]) -> str:
    """The table for a README or a pull request."""
    ruler = ("---",) * 2 + ("---:",) * (len(HEADERS) - 2)
    lines = (HEADERS, ruler, *(map(_markdown_cell, row.cells()) for row in rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def find_runs(paths: Iterable[str | Path]) -> list[RunFolder]:
    """The runs in these folders, however deep, each once: by folder as given, then by path."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        inside = [path] if (path / RUN).is_file() else sorted(file.parent for file in path.rglob(RUN))
        if not inside:
            raise RunError(f"there is no run in {path}: no folder in it has a {RUN}")
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    return [RunFolder.open(folder) for folder in found.values()]


def run_names(folders: Sequence[RunFolder]) -> list[str]:
    """The folders' own names, or as much of their paths as it takes to tell them apart."""
    paths = [folder.path.resolve() for folder in folders]
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath(paths)
    return [path.relative_to(shared).as_posix() for path in paths]


def distinct(folders: Sequence[RunFolder], pick: Callable[[dict[str, Any]], Any]) -> list[tuple[Any, list[str]]]:
    """What is picked from the runs' records, each once, and the names of the runs that have it."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for name, folder in zip(run_names(folders), folders, strict=True):
        value = pick(folder.run)
        found.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(name)
    return list(found.values())


def setting_name(run: dict[str, Any], setting: str) -> str:
    """The name of a run's defense, attack, ...: a plain string or an object that has a name."""
    settings = run.get("settings")
    value = settings.get(setting) if isinstance(settings, dict) else None
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else ABSENT


def _row(name: str, folder: RunFolder) -> Row:
    rounds = folder.rounds()
    summary = summarise(rounds)
    best, last = summary["best"] or {}, summary["last"] or {}
    return Row(
        name=name,
        defense=setting_name(folder.run, "defense"),
        rounds=len(rounds),
        finished=folder.summary() is not None,
        best_round=best.get("round"),
        best_main_accuracy=best.get("main_accuracy"),
        best_backdoor_accuracy=best.get("backdoor_accuracy"),
        last_main_accuracy=last.get("main_accuracy"),
        last_backdoor_accuracy=last.get("backdoor_accuracy"),
        false_positive_rate=summary["false_positive_rate"],
        false_negative_rate=summary["false_negative_rate"],
        seconds=sum(summary["seconds"].get(stage, 0.0) for stage in STAGES),
    )


def _markdown_cell(text: str) -> str:
    """Text that cannot end its cell, start a tag or format itself."""
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]" else letter for letter in " ".join(text.split()))
