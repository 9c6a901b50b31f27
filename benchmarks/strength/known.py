"""Reads the runs of earlier calls of `judge.py` from their result files, and matches them with this call's jobs.

Result files come from other machines and other people: every field that is used is checked, and an error is one
sentence.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.strength.headline import WHEN, Run
from benchmarks.strength.worlds import CLEAN, MODES, Cell, Job, has_cell, is_open, make_experiment
from snowball.errors import RunError
from snowball.records.files import check_fields, read_json
from snowball.sweeps.grid import name_run

MAX_NUMBER = 10**9
"""The largest count or number of seconds that a result may hold."""

ROUNDING = 1e-3
"""The relative error that is allowed between shares that were rounded to six digits, with room to spare."""


class Known(NamedTuple):
    """Known runs, sorted by their use in this call.

    Attributes:
        done: finished runs with the settings of jobs, by run name.
        others: runs that no job asks for.
        ignored: number of runs that jobs ask for with other settings.
    """

    done: dict[str, Run]
    others: list[Run]
    ignored: int


def match_runs(known: Iterable[Run], names: Mapping[Job, str]) -> Known:
    """Match known runs with jobs, which are given with the names of their runs.

    A run that failed is not done. Of several lines for one run, a finished one is taken.
    """
    done: dict[str, Run] = {}
    others: dict[tuple[Job, str], Run] = {}
    wanted, ignored = set(names.values()), 0
    for run in known:
        job, name = Job(Cell(run["world"], run["attack"]), run["defense"], run["seed"]), run["run"]
        if job in names and names[job] != name:
            ignored += 1
            continue
        if job not in names and ((job, name) not in others or "fault" in others[job, name]):
            others[job, name] = run
        if "fault" not in run and name in wanted and (job in names or is_shared(job, name)):
            done.setdefault(name, run)
    return Known(done, list(others.values()), ignored)


def is_shared(job: Job, name: str) -> bool:
    """Return whether a run of this name is Ideal's in the job's cell, and so in all cells that share the name."""
    return job.defense == "ideal" and has_cell(job.cell) and name_run(make_experiment(job)) == name


def read_known(path: Path, mode: str) -> list[Run]:
    """Read the runs of a result file of this mode; refuse any other file."""
    fault = f"{path} is not a result of benchmarks.strength {mode}"
    try:
        result = check_fields(read_json(path), {"mode": lambda value: value == mode, "runs": is_list}, fault)
        return [check_run(run, mode, f"{fault}: run {number}") for number, run in enumerate(result["runs"], start=1)]
    except RecursionError as error:
        raise RunError(f"{fault}: it is nested too deeply") from error


def check_run(value: Any, mode: str, place: str) -> Run:
    """Return a run of this mode whose fields have the right types; otherwise report the error at this place."""
    run = check_fields(value, NAMES, place)
    if run["seed"] not in MODES[mode].seeds:
        raise RunError(f"{place} has seed {run['seed']}, which is not a seed of this mode")
    if not is_open(run["world"], MODES[mode]):
        raise RunError(f"{place} is of {run['world']}, which is not a world of this mode")
    if "fault" in run:
        return check_fields(run, {"fault": is_text}, place)
    check_fields(run, OUTCOME, place)
    accuracies = {"main_accuracy": is_share, "backdoor_accuracy": is_none if run["attack"] == CLEAN else is_share}
    for when in WHEN:
        check_fields(run[when], {"round": is_count, **accuracies}, f"{place}, {when!r}")
    check_clients(run["clients"], f"{place}, 'clients'")
    return run


def check_clients(value: Any, place: str) -> None:
    """Refuse an impossible summary of honest clients, such as a mean that is too small for its highest share."""
    clients = check_fields(value, CLIENTS, place)
    honest, mean, most = clients["honest"], clients["mean_share"], clients["most_share"]
    if clients["never_elected"] > honest:
        raise RunError(f"{place}: {clients['never_elected']} of {honest} clients cannot have been left out")
    if mean and (most is None or most > mean * honest * (1 + ROUNDING)):
        raise RunError(f"{place}: {honest} clients with a 'mean_share' of {mean} cannot have a 'most_share' of {most}")


def is_list(value: Any) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, list)


def is_none(value: Any) -> bool:
    """Return whether a value is null."""
    return value is None


def is_text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that is not negative."""
    return is_count(value) or (isinstance(value, float) and math.isfinite(value) and 0 <= value <= MAX_NUMBER)


def is_share(value: Any) -> bool:
    """Return whether a value is a fraction."""
    return is_number(value) and value <= 1


def allow_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Make a check that null also passes."""
    return lambda value: value is None or check(value)


Checks = dict[str, Callable[[Any], bool]]
"""Names of fields, and the check of each."""

NAMES: Checks = {"world": is_text, "attack": is_text, "defense": is_text, "seed": is_count, "run": is_text}
"""Fields of every run."""

OUTCOME: Checks = {
    "trigger": allow_none(is_text),
    "target": allow_none(is_count),
    **dict.fromkeys(WHEN, lambda value: isinstance(value, dict)),
    "infected_elected": allow_none(is_share),
    "honest_left_out": allow_none(is_share),
    "clients": lambda value: isinstance(value, dict),
    "seconds": is_number,
}
"""Further fields of a finished run."""

CLIENTS: Checks = {
    "honest": is_count,
    "mean_share": allow_none(is_share),
    "most": allow_none(is_text),
    "most_share": allow_none(is_share),
    "most_rounds": allow_none(is_count),
    "never_elected": is_count,
}
"""Fields of the summary of honest clients."""
