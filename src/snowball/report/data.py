"""The data that the runs used, as their records describe it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snowball.records.run import RunFolder
from snowball.report.prose import join_names
from snowball.report.runs import ABSENT, group_distinct, read_setting_name

SOURCES = {
    "sample": "shipped with the package",
    "folder": "in $SNOWBALL_DATA",
    "cache": "in the user's cache",
    "download": "downloaded",
}
COMPLETE = {True: "complete", False: "a subset"}
KNOWN_FIELDS = ("source", "file", "complete", "train", "test", "sha256")
"""The fields that every data set records; others are facts of single data sets."""

MAX_FACTS, MAX_FACT_CHARS, MAX_CHECKSUM_CHARS = 20, 200, 12
"""The most facts of a data set, characters of a fact, and characters of a checksum that are shown."""


@dataclass(frozen=True)
class Fact:
    """The text of a cell, and the full text if that is longer."""

    text: str
    whole: str = ""


@dataclass(frozen=True)
class DataCopy:
    """One copy of a data set.

    Attributes:
        more: facts that only some data sets have, by name.
    """

    name: str
    file: Fact
    source: str
    complete: str
    train: Fact
    test: Fact
    checksum: Fact
    more: tuple[tuple[str, Fact], ...]
    runs: Fact


def describe_data(folders: Sequence[RunFolder]) -> list[DataCopy]:
    """Describe each distinct copy of a data set that the runs record."""
    copies = group_distinct(folders, lambda run: (read_setting_name(run, "data"), run.get("data")))
    return [_describe_copy(name, record, runs) for (name, record), runs in copies if isinstance(record, dict)]


def _describe_copy(name: str, record: dict[str, Any], runs: list[str]) -> DataCopy:
    facts = {key: format_fact(key, record.get(key)) for key in (*KNOWN_FIELDS, *record)}
    source, complete = facts["source"].text, record.get("complete")
    return DataCopy(
        name=name,
        file=facts["file"],
        source=SOURCES.get(source, source),
        complete=COMPLETE[complete] if isinstance(complete, bool) else ABSENT,
        train=facts["train"],
        test=facts["test"],
        checksum=facts["sha256"],
        more=tuple((key, value) for key, value in facts.items() if key not in KNOWN_FIELDS)[:MAX_FACTS],
        runs=Fact(join_names(runs), ", ".join(runs)),
    )


def format_fact(name: str, value: Any) -> Fact:
    """Format a value; show the first characters of a checksum and keep all of it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Fact(ABSENT)
    text = value if isinstance(value, str) else f"{value:,}"
    length = MAX_CHECKSUM_CHARS if name.endswith("sha256") else MAX_FACT_CHARS
    return Fact(text) if len(text) <= length else Fact(f"{text[:length]}…", text[:MAX_FACT_CHARS])
