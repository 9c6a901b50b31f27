"""The runs of a page: what its table shows of each, and the block that it opens."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from snowball.records.run import RunFolder, RunInfo
from snowball.report.prose import outcome
from snowball.report.runs import ABSENT, COLUMNS, Row, noting, run_names, setting_name, table
from snowball.report.web.html import short
from snowball.report.web.run_payload import packed

FEW = 8
"""So many runs are shown all at once; of more, one at a time is opened."""


@dataclass(frozen=True)
class Entry:
    """A run of the page.

    Attributes:
        conditions: what its defense met, as `conditions` has it.
        packed: its rounds and settings.
    """

    folder: RunFolder
    row: Row
    data: str
    attack: str
    seed: str
    conditions: str
    packed: str

    @property
    def outcome(self) -> str:
        """What became of the backdoor."""
        return outcome(self.row.last_main_accuracy, self.row.last_backdoor_accuracy)

    @property
    def link(self) -> str:
        """Where the page shows this run."""
        return address(self.row.name)

    def plain(self) -> dict[str, Any]:
        """What the page's script knows of a run that is not open."""
        return {
            "name": self.row.name,
            "data": self.data,
            "attack": self.attack,
            "defense": self.row.defense,
            "seed": self.seed,
            "conditions": self.conditions,
            "rounds": self.row.rounds,
            "outcome": self.outcome,
            "finished": self.row.finished,
            "main": short(self.row.best_main_accuracy),
            "backdoor": short(self.row.best_backdoor_accuracy),
        }


def catalogue(folders: Sequence[RunFolder], faults: list[str] | None) -> list[Entry]:
    """The runs, in the order given; one that cannot be read is an error, or among the faults."""
    entries = []
    for name, folder in zip(run_names(folders), folders, strict=True):
        with noting(faults):
            entries.append(_entry(name, folder))
    return entries


def _entry(name: str, folder: RunFolder) -> Entry:
    seed = folder.run.get("seed", folder.run.get("settings", {}).get("seed"))
    return Entry(
        folder=folder,
        row=replace(table([folder])[0], name=name),
        data=setting_name(folder.run, "data"),
        attack=setting_name(folder.run, "attack"),
        seed=f"{seed}" if isinstance(seed, int) else ABSENT,
        conditions=conditions(folder.run),
        packed=packed(folder.run, folder.rounds()),
    )


def conditions(run: RunInfo) -> str:
    """A digest of a run's seed and settings but for its defense and number of rounds: alike where defenses compare."""
    settings = run.get("settings")
    met = settings and {**settings, "defense": None, "rounds": None}
    return hashlib.sha256(json.dumps([run.get("seed"), met], sort_keys=True).encode()).hexdigest()[:8]


def address(name: str) -> str:
    """The part of the page's address that opens a run."""
    return f"#{urlencode({'run': name}, errors='backslashreplace')}"


PLACES: dict[str, Callable[[Entry], str]] = {
    "Data": lambda entry: entry.data,
    "Attack": lambda entry: entry.attack,
    "Seed": lambda entry: entry.seed,
}
"""Columns that a table of runs has where runs differ in them."""

VERDICT = "Backdoor, last"
"""The column that says what became of the backdoor."""


@dataclass(frozen=True)
class Column:
    """A column of the table of runs.

    Attributes:
        cells: a text a run.
        numeric: whether the texts start with the numbers that they are sorted by.
        keys: the numbers, where the texts do not.
    """

    header: str
    cells: tuple[str, ...]
    numeric: bool = True
    keys: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """What the page makes of its cells."""
        fits = {
            "place": self.header in (*PLACES, "Defense"),
            "text": not self.numeric,
            "verdict": self.header == VERDICT,
        }
        return " ".join(filter(fits.get, fits))


def columns(entries: Sequence[Entry]) -> list[Column]:
    """The table of runs but for their names."""
    places = [Column(header, tuple(map(show, entries)), header == "Seed") for header, show in PLACES.items()]
    return [column for column in places if len(set(column.cells)) > 1] + [
        Column(
            header,
            tuple(show(entry.row) for entry in entries),
            header != "Defense",
            tuple(entry.row.seconds for entry in entries) if header == "Time" else (),
        )
        for header, show in list(COLUMNS.items())[1:]
    ]
