"""A run's folder: run.json (what was asked), rounds.jsonl (what happened), summary.json (how it ended), checkpoint/.

A round's record is plain JSON:
    round                     from 1
    participants              client ids
    malicious, elected        a bool a participant
    main_accuracy, backdoor_accuracy, false_positive_rate, false_negative_rate
                              fractions, or null where there is nothing to measure
    seconds                   {train, defense, evaluate, ...}
    facts                     the defense's evidence: a number, or a list with an entry a participant (optional)
    map                       [x, y] a participant, the round's updates in two dimensions (optional)
    distances                 {benign, between, infected}: the mean distance between two updates, both benign, one
                              infected, both infected; null where there are no two such (optional)
    dropped                   {client: reason} of the participants that the defense was not given, the reason a key of
                              `snowball.audits.REASONS`; they are not elected, and null in facts and map (only in
                              rounds that have such)
    kept                      why the global model stays as it was, with nobody elected (only in such rounds)
"""

import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records.files import (
    append_line,
    conform,
    explain_os_errors,
    loads,
    read_lines,
    read_object,
    remove_path,
    write_bytes,
    write_json,
)

Record = dict[str, Any]
"""One line of rounds.jsonl."""

RUN, ROUNDS, SUMMARY, CHECKPOINT = FILES = ("run.json", "rounds.jsonl", "summary.json", "checkpoint")


@dataclass(frozen=True)
class RunFolder:
    """A run's folder; `create` starts one, `open` takes one up."""

    path: Path
    run: dict[str, Any]

    @classmethod
    def create(cls, path: str | Path, run: Mapping[str, Any], overwrite: bool = False) -> "RunFolder":
        """Start a run's folder; with `overwrite`, the files of the run that it holds go first."""
        folder = Path(path)
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            present = [folder / name for name in FILES if os.path.lexists(folder / name)]
            if present and not (folder / RUN).is_file():
                raise RunError(f"{folder} has a {present[0].name} and no {RUN}: move that away or give another --out")
            if present and not overwrite:
                raise RunError(f"{folder} already holds a run: give --resume, --overwrite or another --out")
            for file in reversed(present):  # run.json last, so that what is left is known for a run
                remove_path(file)
        write_json(folder / RUN, run)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """The run in this folder; nothing is changed."""
        folder = Path(path)
        if not (folder / RUN).is_file():
            raise RunError(f"{folder} is not a run's folder: it has no {RUN}")
        return cls(folder, read_object(folder / RUN))

    def rounds(self) -> list[Record]:
        """The records so far, without a last line that a crash or a full disk tore."""
        return [record for _, record in self._lines()]

    def summary(self) -> dict[str, Any] | None:
        """How the run ended; None while it has not."""
        return read_object(self.path / SUMMARY) if (self.path / SUMMARY).exists() else None

    def append(self, record: Record) -> None:
        """Add a round: the whole line reaches the disk, or none of it."""
        append_line(self.path / ROUNDS, record)

    def truncate(self, round: int) -> None:
        """Forget what came after this round, its summary included, to go on from a checkpoint."""
        kept = b"".join(line for line, record in self._lines() if record["round"] <= round)
        write_bytes(self.path / ROUNDS, kept)
        with explain_os_errors(self.path / SUMMARY):
            (self.path / SUMMARY).unlink(missing_ok=True)

    def write_summary(self) -> dict[str, Any]:
        """Close the run with the summary of its rounds."""
        summary = summarise(self.rounds())
        write_json(self.path / SUMMARY, summary)
        return summary

    def _lines(self) -> Iterator[tuple[bytes, Record]]:
        """Every whole line of rounds.jsonl, raw and read."""
        for line, place in read_lines(self.path / ROUNDS):
            yield line + b"\n", _record(line, place)


def error_rates(malicious: Iterable[bool], elected: Iterable[bool]) -> tuple[float | None, float | None]:
    """Infected elected among infected, and benign left out among benign; None where there are none of them."""
    counts = {(bad, chosen): 0 for bad in (True, False) for chosen in (True, False)}
    for bad, chosen in zip(malicious, elected, strict=True):
        counts[bool(bad), bool(chosen)] += 1
    infected, benign = counts[True, True] + counts[True, False], counts[False, True] + counts[False, False]
    return (
        counts[True, True] / infected if infected else None,
        counts[False, False] / benign if benign else None,
    )


def summarise(rounds: Sequence[Record]) -> dict[str, Any]:
    """A run's headline: its best round and the backdoor of that round, its last round, the election over all rounds.

    `top_down` has the election over the rounds with a top-down election alone, None where there are none. Where clients
    were dropped, `dropped` says for which reasons and how often each; where the global model stayed as it was, `kept`
    has the rounds.
    """
    evaluated = [record for record in rounds if record["main_accuracy"] is not None]
    grown = [record for record in rounds if has_top_down(record)]
    return {
        "best": _headline(max(evaluated, key=lambda record: record["main_accuracy"], default=None)),
        "last": _headline(evaluated[-1] if evaluated else None),
        **_pool_error_rates(rounds),
        "top_down": {"rounds": len(grown), **_pool_error_rates(grown)} if grown else None,
        "seconds": _total_seconds(rounds),
        **_exceptions(rounds),
    }


def has_top_down(record: Record) -> bool:
    """Whether a top-down election was held in a round, by a member of an intersection too: its time is on record."""
    return any(name.partition(".")[0] == TOP_DOWN for name in record["seconds"])


def _headline(record: Record | None) -> Record | None:
    return record and {name: record[name] for name in ("round", "main_accuracy", "backdoor_accuracy")}


def _pool_error_rates(rounds: Sequence[Record]) -> dict[str, float | None]:
    """The error rates of all the elections of these rounds together."""
    false_positive_rate, false_negative_rate = error_rates(
        (bad for record in rounds for bad in record["malicious"]),
        (chosen for record in rounds for chosen in record["elected"]),
    )
    return {"false_positive_rate": false_positive_rate, "false_negative_rate": false_negative_rate}


def _total_seconds(rounds: Sequence[Record]) -> dict[str, float]:
    names = sorted({name for record in rounds for name in record["seconds"]})
    return {name: math.fsum(record["seconds"].get(name, 0.0) for record in rounds) for name in names}


def _exceptions(rounds: Sequence[Record]) -> Record:
    """Who was dropped, why and how often, and which rounds left the model as it was, where there are any."""
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    for record in rounds:
        for client, reason in record.get("dropped", {}).items():
            dropped[client][reason] += 1
    kept = [record["round"] for record in rounds if record.get("kept") is not None]
    return {name: found for name, found in {"dropped": dropped, "kept": kept}.items() if found}


def _is_fraction(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 <= value <= 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _are(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def _is_point(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and len(value) == 2 and all(entry is None or _is_number(entry) for entry in value)
    )


def _are_distances(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == set(PAIRS)
        and all(entry is None or (_is_number(entry) and entry >= 0) for entry in value.values())
    )


PAIRS = ("benign", "between", "infected")
"""What two updates can be, by how many of them are infected."""

TOP_DOWN = "top_down"
"""What the time of a top-down election is called among a round's seconds; a member's number may follow a dot."""

CODES = ("code.first", "code.second")
"""The facts that say where a VAE sees each participant, along the two directions in which they differ most."""

FIELDS: dict[str, Callable[[Any], bool]] = {
    "round": lambda value: isinstance(value, int) and value >= 1,
    "participants": _are(str),
    "malicious": _are(bool),
    "elected": _are(bool),
    "main_accuracy": _is_fraction,
    "backdoor_accuracy": _is_fraction,
    "false_positive_rate": _is_fraction,
    "false_negative_rate": _is_fraction,
    "seconds": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "facts": lambda value: isinstance(value, dict),
    "map": lambda value: value is None or (isinstance(value, list) and all(map(_is_point, value))),
    "distances": lambda value: value is None or _are_distances(value),
}
"""What a record holds, and the check of each."""

OPTIONAL: Record = {"facts": {}, "map": None, "distances": None}
"""What stands for a field that a record may leave out."""

RARE: dict[str, Callable[[Any], bool]] = {
    "dropped": lambda value: isinstance(value, dict) and all(isinstance(reason, str) for reason in value.values()),
    "kept": lambda value: isinstance(value, str),
}
"""What only the records of some rounds hold, and the check of each."""

PARALLEL = ("malicious", "elected", "map")
"""Fields with an entry a participant."""


def _record(line: bytes, place: str) -> Record:
    """The record on a line, or a sentence that says what is wrong with it."""
    fault = f"{place} is not a round's record"
    record = conform(loads(line, place), FIELDS, fault, OPTIONAL)
    conform(record, {name: fits for name, fits in RARE.items() if name in record}, fault)
    for name in PARALLEL:
        if record[name] is not None and len(record[name]) != len(record["participants"]):
            counts = f"{len(record['participants'])} participants and {len(record[name])} of {name!r}"
            raise RunError(f"{fault}: it has {counts}")
    return record
