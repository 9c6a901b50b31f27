"""A run's folder: run.json (what was asked), rounds.jsonl (what happened), summary.json (how it ended), checkpoint/."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from snowball.errors import RunError
from snowball.records.checks import is_text, make_dict_check, make_optional_check
from snowball.records.files import (
    append_line,
    explain_os_errors,
    make_folder,
    read_lines,
    read_object,
    remove_path,
    write_bytes,
    write_json,
)
from snowball.records.rounds import RoundRecord, parse_round
from snowball.records.summary import Summary, summarise_rounds

RUN, ROUNDS, SUMMARY, CHECKPOINT = FILES = ("run.json", "rounds.jsonl", "summary.json", "checkpoint")


class RunInfo(TypedDict, total=False):
    """The content of run.json: what was run, with which code, where and on which data.

    Versions differ in the fields that they write, and reports show all of them. A field whose type differs from the
    one here is not read.

    Attributes:
        settings: of the experiment, nested as in a preset.
        versions: of Python and the packages that decide the numbers.
        commit: of the code, if it runs from a checkout.
        machine: processor, cores and system.
        data: the data set's source, number of samples and checksum.
        model: class, size and checksum, if the model was given from Python.
        trigger: what the attack's trigger looks like, if it has one.
        started: when, UTC.
    """

    settings: dict[str, Any]
    seed: int
    versions: dict[str, str]
    commit: str | None
    machine: dict[str, Any]
    data: dict[str, Any]
    model: dict[str, Any]
    trigger: dict[str, Any] | None
    started: str


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


RUN_FIELDS: dict[str, Callable[[Any], bool]] = {
    "settings": _is_object,
    "seed": lambda value: isinstance(value, int),
    "versions": make_dict_check(is_text),
    "commit": make_optional_check(is_text),
    "machine": _is_object,
    "data": _is_object,
    "model": _is_object,
    "trigger": make_optional_check(_is_object),
    "started": is_text,
}
"""The fields of run.json that are read, and the check of each."""


@dataclass(frozen=True)
class RunFolder:
    """A run's folder; `create` starts one, `open` opens an existing one."""

    path: Path
    run: RunInfo

    @classmethod
    def create(cls, path: str | Path, run: RunInfo, overwrite: bool = False) -> "RunFolder":
        """Start a run's folder; with `overwrite`, first remove the files of the run that it holds."""
        folder = Path(path)
        make_folder(folder)
        with explain_os_errors(folder):
            present = [folder / name for name in FILES if os.path.lexists(folder / name)]
            if (folder / RUN).is_dir():
                raise RunError(f"{folder / RUN} is a folder: move that away or give another --out")
            if present and not (folder / RUN).is_file():
                raise RunError(
                    f"{folder} has a {present[0].name} and no {RUN}: move that away or choose another folder"
                )
            if present and not overwrite:
                raise RunError(f"{folder} already holds a run: give --resume, --overwrite or another --out")
            for file in reversed(present):  # run.json last: until then the folder still counts as a run
                remove_path(file)
        write_json(folder / RUN, run)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Open the run in this folder without changing anything."""
        folder = Path(path)
        if not (folder / RUN).is_file():
            raise RunError(f"{folder} is not a run's folder: it has no {RUN}")
        content = read_object(folder / RUN)
        read = {name: value for name, value in content.items() if name not in RUN_FIELDS or RUN_FIELDS[name](value)}
        return cls(folder, cast(RunInfo, read))

    def read_rounds(self) -> list[RoundRecord]:
        """Read the records so far; skip a last line that a crash or a full disk left incomplete."""
        return [record for _, record in self._read_lines()]

    def read_summary(self, complete: bool = False) -> Summary | None:
        """Read the run's summary; None if it has not ended.

        A summary of an earlier version has no `top_down`: `complete` computes it from the rounds.
        """
        path = self.path / SUMMARY
        if not path.exists():
            return None
        content = read_object(path)
        summary = Summary.parse(content, f"{path} is of another version")
        if complete and "top_down" not in content:
            return replace(summary, top_down=summarise_rounds(self.read_rounds()).top_down)
        return summary

    def is_summarised(self, rounds: Sequence[RoundRecord]) -> bool:
        """Whether there is a summary with all the fields that this version writes for these rounds."""
        path = self.path / SUMMARY
        return path.exists() and read_object(path).keys() == summarise_rounds(rounds).plain().keys()

    def append(self, record: RoundRecord) -> None:
        """Add a round: the whole line reaches the disk, or none of it."""
        append_line(self.path / ROUNDS, record)

    def set_rounds(self, rounds: int) -> None:
        """Change the number of rounds that run.json asks for, if it differs."""
        settings = self.run["settings"]
        if settings.get("rounds") != rounds:
            write_json(self.path / RUN, self.run | {"settings": settings | {"rounds": rounds}})

    def truncate(self, round: int) -> None:
        """Remove the summary and all rounds after this one, to continue from a checkpoint."""
        kept = b"".join(line for line, record in self._read_lines() if record["round"] <= round)
        write_bytes(self.path / ROUNDS, kept)
        with explain_os_errors(self.path / SUMMARY):
            (self.path / SUMMARY).unlink(missing_ok=True)

    def write_summary(self) -> Summary:
        """Close the run with the summary of its rounds."""
        summary = summarise_rounds(self.read_rounds())
        write_json(self.path / SUMMARY, summary.plain())
        return summary

    def _read_lines(self) -> Iterator[tuple[bytes, RoundRecord]]:
        """Yield every complete line of rounds.jsonl, raw and parsed."""
        for line, where in read_lines(self.path / ROUNDS):
            yield line + b"\n", parse_round(line, where)
