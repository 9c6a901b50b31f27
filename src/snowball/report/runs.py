"""The table of runs: one row per run, from its summary, or from its rounds if it has none yet."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records.fading import Fading
from snowball.records.files import read_lines
from snowball.records.rounds import ADAPTATION, RoundRecord
from snowball.records.run import ROUNDS, RUN, SUMMARY, RunFolder, RunInfo
from snowball.records.summary import Summary, summarise_rounds
from snowball.records.sweep import MANIFESTS

STAGES = ("train", "defense", "evaluate")
"""The stages of a round; other times in a record are parts of these, or of an attack that adapts before them."""

ABSENT = "–"  # noqa: RUF001


@dataclass(frozen=True)
class Point:
    """One round's accuracies, as fractions, and how many updates arrived and were averaged.

    Attributes:
        participants: all updates that arrived.
        elected: those that were averaged.
        infected: those that arrived from attackers.
        averaged: those from attackers that were averaged.
    """

    round: int
    main_accuracy: float | None
    backdoor_accuracy: float | None
    participants: int
    elected: int
    infected: int
    averaged: int


@dataclass(frozen=True)
class Row:
    """One run's numbers; accuracies and rates are fractions, or None if there is nothing to measure.

    Attributes:
        dropped: how often each client was dropped, by reason.
        kept: the rounds that left the global model as it was.
        conditions: see `hash_conditions`.
        points: its rounds.
        fading: how the backdoor fades after the attack has stopped, if it stops before the last round.
    """

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
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    kept: Sequence[int] = ()
    conditions: str = ""
    points: Sequence[Point] = ()
    fading: Fading | None = None

    @property
    def infected(self) -> int:
        """How many infected updates arrived."""
        return sum(point.infected for point in self.points)

    @property
    def averaged(self) -> int:
        """How many infected updates were averaged."""
        return sum(point.averaged for point in self.points)

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell for each of `HEADERS`."""
        return tuple(show(self) for show in COLUMNS.values())


def format_percent(value: float | None) -> str:
    """Format a fraction in per cent."""
    return ABSENT if value is None else f"{100 * value:.1f}%"


def format_duration(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 600:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "Run": lambda row: row.name,
    "Defense": lambda row: row.defense,
    "Rounds": lambda row: f"{row.rounds}" if row.finished else f"{row.rounds}, unfinished",
    "Best round": lambda row: ABSENT if row.best_round is None else f"{row.best_round}",
    "Main accuracy, best": lambda row: format_percent(row.best_main_accuracy),
    "Backdoor, that round": lambda row: format_percent(row.best_backdoor_accuracy),
    "Main accuracy, last": lambda row: format_percent(row.last_main_accuracy),
    "Backdoor, last": lambda row: format_percent(row.last_backdoor_accuracy),
    "Infected elected": lambda row: format_percent(row.false_positive_rate),
    "Benign left out": lambda row: format_percent(row.false_negative_rate),
    "Time": lambda row: format_duration(row.seconds),
}

HEADERS = tuple(COLUMNS)
"""The table's headings, in order."""


@contextmanager
def note_faults(faults: list[str] | None) -> Iterator[None]:
    """Catch an error about an unusable file and add it to the faults; without such a list, raise it."""
    try:
        yield
    except (RunError, OSError) as error:
        if faults is None:
            raise
        faults.append(str(error))


def build_rows(folders: Sequence[RunFolder], faults: list[str] | None = None) -> list[Row]:
    """Build one row per run, in the order given; a run that cannot be read is an error, or one of the faults."""
    rows = []
    for name, folder in zip(choose_run_names(folders), folders, strict=True):
        with note_faults(faults):
            rows.append(build_row(name, folder, folder.read_rounds()))
    return rows


def format_rows(rows: Iterable[Row]) -> str:
    """Format the table as Markdown."""
    ruler = ("---",) * 2 + ("---:",) * (len(HEADERS) - 2)
    lines = (HEADERS, ruler, *(map(escape_markdown, row.cells()) for row in rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def find_runs(paths: Iterable[str | Path], faults: list[str] | None = None) -> list[RunFolder]:
    """Find the runs in these folders, at any depth, each once, in the order of the folders, then by path.

    A folder without runs, or a run that cannot be opened, is an error, or one of the faults.
    """
    found: dict[Path, RunFolder] = {}
    for path in map(Path, paths):
        inside = [path] if _holds_run(path) else sorted(filter(_holds_run, (file.parent for file in path.rglob(RUN))))
        with note_faults(faults):
            if not inside:
                raise RunError(f"there is no run in {path}: no folder in it has a {RUN}")
        for folder in inside:
            with note_faults(faults):
                found.setdefault(folder.resolve(), RunFolder.open(folder))
    return list(found.values())


def _holds_run(folder: Path) -> bool:
    """Whether the folder holds a run; a manifest may be called run.json too."""
    return (folder / RUN).is_file() and (folder.name != MANIFESTS or (folder / ROUNDS).exists())


def count_rounds(folder: RunFolder) -> int:
    """Count the rounds on record."""
    return sum(1 for _ in read_lines(folder.path / ROUNDS))


def choose_run_names(folders: Sequence[RunFolder]) -> list[str]:
    """Return the folders' own names, or as much of their paths as is needed to tell them apart."""
    paths = [folder.path.resolve() for folder in folders]
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath(paths)
    return [path.relative_to(shared).as_posix() for path in paths]


def group_distinct(folders: Sequence[RunFolder], pick: Callable[[RunInfo], Any]) -> list[tuple[Any, list[str]]]:
    """Group runs by what `pick` returns: each distinct value, and the names of the runs that have it."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for name, folder in zip(choose_run_names(folders), folders, strict=True):
        value = pick(folder.run)
        found.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(name)
    return list(found.values())


def read_setting_name(run: RunInfo, setting: str) -> str:
    """Return the name of a run's defense, attack or data, which is a string or an object with a name."""
    value = run.get("settings", {}).get(setting)
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else ABSENT


def read_defense(run: RunInfo) -> str:
    """Return the name of a run's defense, then those of the mixings before it, such as `krum, nnm`."""
    own = run.get("settings", {}).get("defense")
    before = own.get("before") if isinstance(own, dict) else None
    mixings = [part.get("name") for part in before if isinstance(part, dict)] if isinstance(before, list) else []
    return ", ".join([read_setting_name(run, "defense"), *(name for name in mixings if isinstance(name, str))])


def hash_conditions(run: RunInfo) -> str:
    """Hash a run's seed, settings except defense and number of rounds, and own data and model.

    Runs with equal hashes compare defenses.
    """
    settings, data = run.get("settings"), run.get("data", {})
    met = settings and {**settings, "defense": None, "rounds": None}
    own = (data if data.get("source") == "python" else None, run.get("model"))
    return hashlib.sha256(json.dumps([run.get("seed"), met, own], sort_keys=True).encode()).hexdigest()[:8]


def build_row(name: str, folder: RunFolder, records: Sequence[RoundRecord]) -> Row:
    """Build the row of a run from its rounds."""
    summary, finished = _read_summary(folder, records)
    best, last = summary.best, summary.last
    return Row(
        name=name,
        defense=read_defense(folder.run),
        rounds=len(records),
        finished=finished,
        best_round=best and best.round,
        best_main_accuracy=best and best.main_accuracy,
        best_backdoor_accuracy=best and best.backdoor_accuracy,
        last_main_accuracy=last and last.main_accuracy,
        last_backdoor_accuracy=last and last.backdoor_accuracy,
        false_positive_rate=summary.false_positive_rate,
        false_negative_rate=summary.false_negative_rate,
        seconds=sum(summary.seconds.get(stage, 0.0) for stage in (*STAGES, ADAPTATION)),
        dropped=summary.dropped,
        kept=summary.kept,
        conditions=hash_conditions(folder.run),
        points=tuple(map(_build_point, records)),
        fading=summary.fading,
    )


def _build_point(record: RoundRecord) -> Point:
    return Point(
        round=record["round"],
        main_accuracy=record["main_accuracy"],
        backdoor_accuracy=record["backdoor_accuracy"],
        participants=len(record["participants"]),
        elected=sum(record["elected"]),
        infected=sum(record["malicious"]),
        averaged=sum(bad and chosen for bad, chosen in zip(record["malicious"], record["elected"], strict=True)),
    )


def _read_summary(folder: RunFolder, records: Sequence[RoundRecord]) -> tuple[Summary, bool]:
    """Return the summary of a run so far, and whether it is finished; compute it if the file does not fit."""
    whole = folder.run.get("settings", {}).get("rounds", len(records)) == len(records)
    with suppress(RunError):
        if whole and (summary := folder.read_summary()) is not None:
            return summary, True
    return summarise_rounds(records), whole and (folder.path / SUMMARY).exists()


def escape_markdown(text: str) -> str:
    """Escape text so that it cannot end its cell, start a tag, link or formula, mention somebody, or format itself."""
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]~$&#@:" else letter for letter in " ".join(text.split()))
