"""The metrics of a run, read from its folder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from snowball.errors import RunError
from snowball.records.checks import is_between
from snowball.records.fading import LATER_ROUNDS
from snowball.records.files import parse_json, read_lines
from snowball.records.rounds import RoundRecord
from snowball.records.run import ROUNDS, SUMMARY, RunFolder
from snowball.records.summary import MAX_SECONDS, Summary
from snowball.report.runs import count_rounds

Unit = Literal["%", "s", "rounds"]


@dataclass(frozen=True)
class Metric:
    """A number of a run.

    Attributes:
        short: the heading of a column, as in the paper.
        label: the same in words.
        read: reads it from a run's summary; None for a time.
        read_round: reads it from a round's record; None if single rounds do not have it.
        higher_is_better: False if lower is.
        stage: the part of a round that a time is the median of, over the rounds.
        counts_rounds: whether it is a number of rounds.
    """

    short: str
    label: str
    read: Callable[[Summary], float | None] | None = None
    read_round: Callable[[RoundRecord], float | None] | None = None
    higher_is_better: bool = False
    stage: str = ""
    counts_rounds: bool = False

    @property
    def timed(self) -> bool:
        """Whether it is in seconds."""
        return self.stage != ""

    @property
    def unit(self) -> Unit:
        """The unit; fractions are shown in per cent."""
        return "s" if self.timed else "rounds" if self.counts_rounds else "%"


IN_TOP_DOWN_ROUNDS = ", in rounds with a top-down election if there are any"

METRICS = {
    "backdoor_accuracy": Metric(
        "BA",
        "backdoor accuracy, best round",
        lambda summary: summary.best and summary.best.backdoor_accuracy,
        lambda record: record["backdoor_accuracy"],
    ),
    "main_accuracy": Metric(
        "MA",
        "main accuracy, best round",
        lambda summary: summary.best and summary.best.main_accuracy,
        lambda record: record["main_accuracy"],
        higher_is_better=True,
    ),
    "last_backdoor_accuracy": Metric(
        "BA, last",
        "backdoor accuracy, last round",
        lambda summary: summary.last and summary.last.backdoor_accuracy,
    ),
    "last_main_accuracy": Metric(
        "MA, last",
        "main accuracy, last round",
        lambda summary: summary.last and summary.last.main_accuracy,
        higher_is_better=True,
    ),
    "false_positive_rate": Metric(
        "FPR",
        "infected updates elected",
        lambda summary: summary.false_positive_rate,
        lambda record: record["false_positive_rate"],
    ),
    "false_negative_rate": Metric(
        "FNR",
        "benign updates left out",
        lambda summary: summary.false_negative_rate,
        lambda record: record["false_negative_rate"],
    ),
    "top_down_false_positive_rate": Metric(
        "FPR",
        f"infected updates elected{IN_TOP_DOWN_ROUNDS}",
        lambda summary: (summary.top_down or summary).false_positive_rate,
    ),
    "top_down_false_negative_rate": Metric(
        "FNR",
        f"benign updates left out{IN_TOP_DOWN_ROUNDS}",
        lambda summary: (summary.top_down or summary).false_negative_rate,
    ),
    "stop_backdoor_accuracy": Metric(
        "BA, stop",
        "backdoor accuracy when the attack stops",
        lambda summary: summary.fading and summary.fading.backdoor_accuracy,
    ),
    "later_backdoor_accuracy": Metric(
        f"BA, +{LATER_ROUNDS}",
        f"backdoor accuracy {LATER_ROUNDS} rounds after the attack stops",
        lambda summary: summary.fading and summary.fading.later_backdoor_accuracy,
    ),
    "half_rounds": Metric(
        "half after",
        "rounds after the attack stops until the backdoor is below half of what it was",
        lambda summary: summary.fading and summary.fading.half_rounds,
        counts_rounds=True,
    ),
    "defense_seconds": Metric(
        "defense, s",
        "seconds of the defense per round",
        read_round=lambda record: record["seconds"].get("defense"),
        stage="defense",
    ),
    "evaluate_seconds": Metric(
        "evaluation, s",
        "seconds of the evaluation per round",
        read_round=lambda record: record["seconds"].get("evaluate"),
        stage="evaluate",
    ),
}
"""The metrics that tables and figures may show, by name."""


RunMetrics = tuple[dict[str, Any], dict[str, float] | None]
"""A run's settings, and its metrics if it is finished."""


def read_run_metrics(path: Path, timed: bool) -> RunMetrics:
    """Read a run's settings and metrics; `timed` includes times, for which every round is read."""
    folder = RunFolder.open(path)
    settings, summary = folder.run.get("settings"), folder.read_summary(complete=True)
    if settings is None:
        raise RunError(f"{path} is of another version: its run.json has no 'settings'")
    if summary is None:
        return settings, None
    _refuse_other_length(folder, settings.get("rounds"))
    numbers = {name: metric.read(summary) for name, metric in METRICS.items() if metric.read}
    if timed:
        numbers |= _read_times(folder)
    return settings, {name: float(number) for name, number in numbers.items() if number is not None}


def _refuse_other_length(folder: RunFolder, rounds: Any) -> None:
    """Refuse a finished run with more or fewer rounds on record than its settings say."""
    if (found := count_rounds(folder)) != rounds:
        where = folder.path / ROUNDS
        raise RunError(f"{where} should hold {rounds} rounds and holds {found}, though the run has its {SUMMARY}")


def _read_times(folder: RunFolder) -> dict[str, float | None]:
    rounds = [(_parse_seconds(line, where), where) for line, where in read_lines(folder.path / ROUNDS)]
    return {name: _compute_median(rounds, metric.stage) for name, metric in METRICS.items() if metric.timed}


def _parse_seconds(line: bytes, where: str) -> dict[str, Any]:
    """Parse a round's times at the end of its line; parsing the facts before them takes a hundred times as long."""
    try:
        record = json.loads(b"{" + line[line.rfind(b'"seconds"') :])
    except (ValueError, RecursionError):
        record = parse_json(line, where)
    seconds = record.get("seconds") if isinstance(record, dict) else None
    if not isinstance(seconds, dict):
        raise RunError(f"{where} is not a round's record: it has no 'seconds'")
    return seconds


def _compute_median(rounds: Sequence[tuple[dict[str, Any], str]], part: str) -> float | None:
    for seconds, where in rounds:
        if part in seconds and not is_between(seconds[part], MAX_SECONDS):
            raise RunError(f"{where} is not a round's record: {part} cannot take {str(seconds[part])[:60]} seconds")
    times = [seconds[part] for seconds, _ in rounds if part in seconds]
    return float(median(times)) if times else None
