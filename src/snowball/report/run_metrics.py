"""The numbers of a run, as far as its folder has them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from snowball.errors import RunError
from snowball.records.files import loads, read_lines
from snowball.records.run import ROUNDS, SUMMARY, RunFolder, summarise
from snowball.report.runs import MOST_SECONDS, count_rounds, is_between, read_summary


@dataclass(frozen=True)
class Metric:
    """A number of a run.

    Attributes:
        short: the heading of a column, as the paper has it.
        label: the same in words.
        where: the way to it in a run's summary; of seconds, the part of a round whose median it is.
        higher_is_better: which way is up.
        timed: whether it is seconds rather than a fraction.
    """

    short: str
    label: str
    where: tuple[str, ...]
    higher_is_better: bool = False
    timed: bool = False


GROWN = ", in rounds with a top-down election if there are any"

METRICS = {
    "backdoor_accuracy": Metric("BA", "backdoor accuracy, best round", ("best", "backdoor_accuracy")),
    "main_accuracy": Metric("MA", "main accuracy, best round", ("best", "main_accuracy"), True),
    "last_backdoor_accuracy": Metric("BA, last", "backdoor accuracy, last round", ("last", "backdoor_accuracy")),
    "last_main_accuracy": Metric("MA, last", "main accuracy, last round", ("last", "main_accuracy"), True),
    "false_positive_rate": Metric("FPR", "infected updates elected", ("false_positive_rate",)),
    "false_negative_rate": Metric("FNR", "benign updates left out", ("false_negative_rate",)),
    "top_down_false_positive_rate": Metric(
        "FPR", f"infected updates elected{GROWN}", ("top_down", "false_positive_rate")
    ),
    "top_down_false_negative_rate": Metric(
        "FNR", f"benign updates left out{GROWN}", ("top_down", "false_negative_rate")
    ),
    "defense_seconds": Metric("defense, s", "seconds of the defense a round", ("defense",), timed=True),
    "evaluate_seconds": Metric("evaluation, s", "seconds of the evaluation a round", ("evaluate",), timed=True),
}
"""What can stand in a table, by name."""


Outcome = tuple[dict[str, Any], dict[str, float] | None]
"""A run's settings, and its numbers if it is finished."""


def read_outcome(path: Path, timed: bool) -> Outcome:
    """What a run's folder says; its rounds are read where they have to be."""
    folder = RunFolder.open(path)
    settings, summary = folder.run.get("settings"), read_summary(folder)
    if not isinstance(settings, dict):
        raise RunError(f"{path} is of another version: its run.json has no 'settings'")
    if summary is None:
        return settings, None
    _refuse_other_length(folder, settings.get("rounds"))
    grown = summary["top_down"] if "top_down" in summary else summarise(folder.rounds())["top_down"]
    ending = {**summary, "top_down": grown or summary}  # without a top-down election, all rounds count
    numbers = {name: _of_summary(ending, metric.where) for name, metric in METRICS.items() if not metric.timed}
    if timed:
        numbers |= _of_rounds(folder)
    return settings, {name: number for name, number in numbers.items() if number is not None}


def _refuse_other_length(folder: RunFolder, rounds: Any) -> None:
    """Refuse a run that is over and has not as many rounds on record as it should."""
    if (found := count_rounds(folder)) != rounds:
        where = folder.path / ROUNDS
        raise RunError(f"{where} should hold {rounds} rounds and holds {found}, though the run has its {SUMMARY}")


def _of_summary(summary: dict[str, Any], where: Iterable[str]) -> float | None:
    value: Any = summary
    for step in where:
        value = value and value[step]  # where no round was evaluated, there is no best one
    return None if value is None else float(value)


def _of_rounds(folder: RunFolder) -> dict[str, float | None]:
    rounds = [(_seconds(line, where), where) for line, where in read_lines(folder.path / ROUNDS)]
    return {name: _median(rounds, metric.where[0]) for name, metric in METRICS.items() if metric.timed}


def _seconds(line: bytes, where: str) -> dict[str, Any]:
    """A round's times: they end its line, behind facts that take a hundred times as long to read."""
    try:
        record = json.loads(b"{" + line[line.rfind(b'"seconds"') :])
    except (ValueError, RecursionError):
        record = loads(line, where)
    seconds = record.get("seconds") if isinstance(record, dict) else None
    if not isinstance(seconds, dict):
        raise RunError(f"{where} is not a round's record: it has no 'seconds'")
    return seconds


def _median(rounds: Sequence[tuple[dict[str, Any], str]], part: str) -> float | None:
    for seconds, where in rounds:
        if part in seconds and not is_between(seconds[part], MOST_SECONDS):
            raise RunError(f"{where} is not a round's record: {part} cannot take {str(seconds[part])[:60]} seconds")
    times = [seconds[part] for seconds, _ in rounds if part in seconds]
    return float(median(times)) if times else None
