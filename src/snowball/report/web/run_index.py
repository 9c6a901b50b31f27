"""The runs of a page: the columns of its table, and the data of each run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from snowball.records.run import RunFolder
from snowball.report.outcomes import Outcome, judge_rows
from snowball.report.prose import describe_outcome
from snowball.report.runs import ABSENT, COLUMNS, Row, build_row, choose_run_names, note_faults, read_setting_name
from snowball.report.web.html import round_numbers
from snowball.report.web.run_payload import pack_run

MAX_OPEN_RUNS = 8
"""The most runs that are all shown at once; if there are more, one is opened at a time."""


@dataclass(frozen=True)
class IndexedRun:
    """A run of the page.

    Attributes:
        packed: its rounds and settings.
        judged: its outcome, beside the other runs of the page.
    """

    folder: RunFolder
    row: Row
    data: str
    attack: str
    seed: str
    packed: str
    judged: Outcome

    @property
    def outcome(self) -> str:
        """The run's outcome, a key of `OUTCOMES`."""
        return self.judged.key

    @property
    def link(self) -> str:
        """The link that opens this run."""
        return build_address(self.row.name)

    def plain(self) -> dict[str, Any]:
        """Return the data that the page's script has before the run is opened."""
        return {
            "name": self.row.name,
            "data": self.data,
            "attack": self.attack,
            "defense": self.row.defense,
            "seed": self.seed,
            "conditions": self.row.conditions,
            "rounds": self.row.rounds,
            "outcome": self.outcome,
            "verdict": describe_outcome(self.row, self.judged),
            "finished": self.row.finished,
            "main": round_numbers(self.row.best_main_accuracy),
            "backdoor": round_numbers(self.row.best_backdoor_accuracy),
        }


def build_run_index(folders: Sequence[RunFolder], faults: list[str] | None) -> list[IndexedRun]:
    """Index the runs, in the order given; one that cannot be read is an error, or one of the faults."""
    read = []
    for name, folder in zip(choose_run_names(folders), folders, strict=True):
        with note_faults(faults):
            records = folder.read_rounds()
            read.append((folder, build_row(name, folder, records), pack_run(folder.run, records)))
    outcomes = judge_rows([row for _, row, _ in read])
    return [_index_run(*each, judged) for each, judged in zip(read, outcomes, strict=True)]


def _index_run(folder: RunFolder, row: Row, packed: str, judged: Outcome) -> IndexedRun:
    seed = folder.run.get("seed", folder.run.get("settings", {}).get("seed"))
    return IndexedRun(
        folder=folder,
        row=row,
        data=read_setting_name(folder.run, "data"),
        attack=read_setting_name(folder.run, "attack"),
        seed=f"{seed}" if isinstance(seed, int) else ABSENT,
        packed=packed,
        judged=judged,
    )


def build_address(name: str) -> str:
    """Build the fragment of the page's address that opens a run."""
    return f"#{urlencode({'run': name}, errors='backslashreplace')}"


SETTING_COLUMNS: dict[str, Callable[[IndexedRun], str]] = {
    "Data": lambda entry: entry.data,
    "Attack": lambda entry: entry.attack,
    "Seed": lambda entry: entry.seed,
}
"""The columns that the table of runs has only if the runs differ in them."""

VERDICT_COLUMN = "Backdoor, last"
"""The column that shows whether the model has learned the backdoor."""


@dataclass(frozen=True)
class Column:
    """A column of the table of runs.

    Attributes:
        cells: one text per run.
        numeric: whether the texts start with the numbers that they are sorted by.
        keys: the numbers to sort by, if the texts do not start with them.
    """

    header: str
    cells: tuple[str, ...]
    numeric: bool = True
    keys: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """The CSS classes of its cells."""
        fits = {
            "place": self.header in (*SETTING_COLUMNS, "Defense"),
            "text": not self.numeric,
            "verdict": self.header == VERDICT_COLUMN,
        }
        return " ".join(filter(fits.get, fits))


def build_columns(entries: Sequence[IndexedRun]) -> list[Column]:
    """Build the columns of the table of runs, except their names."""
    settings = [Column(header, tuple(map(show, entries)), header == "Seed") for header, show in SETTING_COLUMNS.items()]
    return [column for column in settings if len(set(column.cells)) > 1] + [
        Column(
            header,
            tuple(show(entry.row) for entry in entries),
            header != "Defense",
            tuple(entry.row.seconds for entry in entries) if header == "Time" else (),
        )
        for header, show in list(COLUMNS.items())[1:]
    ]
