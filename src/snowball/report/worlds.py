"""The worlds of a sweep: federations and attacks on them, with every defense beside FedAvg and Ideal.

A world is all that a sweep varies except the defense and the seed. A seed counts only if FedAvg learns the backdoor
with it, since it takes no skill to keep out an attack that does not work.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, NamedTuple

from snowball.records.text import escape_text
from snowball.report.sweeps import Run, locate_run

LEARNED = 0.8
"""The backdoor accuracy in FedAvg's last round above which an attack works."""

UNDEFENDED, CLEAN = "fedavg", "ideal"
"""The defenses that the others are compared with."""

NOBODY = "none"
"""The name of the attack where nobody is malicious."""

State = Literal["counts", "harmless", "unknown", "clean"]
"""FedAvg learns the backdoor with one seed or more, with none, or has no finished run; or nobody is malicious."""


class Comparison(NamedTuple):
    """A finished run beside those of FedAvg and Ideal with its seed; numbers that are not known are missing."""

    run: str
    seed: int
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class Trial:
    """A defense in a world.

    Attributes:
        state: of the world.
        compared: the runs with the seeds that count, or with all seeds if none counts.
        expected: how many such runs the sweep asks for.
    """

    state: State
    compared: tuple[Comparison, ...]
    expected: int


@dataclass(frozen=True)
class World:
    """A federation and an attack on it.

    Attributes:
        learned: FedAvg's backdoor accuracy in the last round, mean over all seeds; None if it is not known.
        trials: by defense.
    """

    label: str
    state: State
    learned: float | None
    trials: Mapping[str, Trial]


def build_worlds(runs: Sequence[Run]) -> tuple[World, ...]:
    """Judge all defenses in each world of a sweep."""
    paths = [path for path in find_paths(runs) if path != "seed" and not path.startswith("defense.")]
    groups = list(group_runs(runs, lambda run: locate_run(run, paths)).values())
    labels, defenses = label_worlds([own[0] for own in groups], paths), label_defenses(runs)
    return tuple(judge_world(label, own, defenses) for label, own in zip(labels, groups, strict=True))


def find_paths(runs: Iterable[Run]) -> list[str]:
    """Find all settings that locate runs."""
    return list(dict.fromkeys(path for run in runs for path in run.at))


def group_runs(runs: Iterable[Run], choose: Callable[[Run], str]) -> dict[str, list[Run]]:
    """Group runs by a text, in the order in which they are found."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(choose(run), []).append(run)
    return groups


def label_defenses(runs: Sequence[Run]) -> dict[str, str]:
    """Return each run's defense, with the settings in which defenses of one name differ, by the run's name."""
    labels = {}
    for name, own in group_runs(runs, lambda run: str(run.at["defense.name"])).items():
        paths = [path for path in find_paths(own) if path.startswith("defense.") and path != "defense.name"]
        for run in own:
            labels[run.name] = escape_text(", ".join([name, *describe_settings(run, find_varied(own, paths))]))
    return labels


def label_worlds(runs: Sequence[Run], paths: Sequence[str]) -> list[str]:
    """Return the labels of worlds, given one run of each: data set, attack, and what tells apart those that agree."""
    names = [path for path in ("data.name", "attack.name") if path in find_varied(runs, paths)] or ["data.name"]
    alike = group_runs(runs, lambda run: locate_run(run, names))
    labels = []
    for run in runs:
        varied = find_varied(alike[locate_run(run, names)], paths)
        labels.append(escape_text(", ".join(describe_settings(run, [*names, *varied]))))
    return labels


def find_varied(runs: Sequence[Run], paths: Iterable[str]) -> list[str]:
    """Find the settings in which runs differ: as few as tell them all apart, the first ones."""
    varied: list[str] = []
    for path in paths:
        if len({locate_run(run, [*varied, path]) for run in runs}) > len({locate_run(run, varied) for run in runs}):
            varied.append(path)
    return varied


def describe_settings(run: Run, paths: Iterable[str]) -> list[str]:
    """Describe a run's settings: names alone, other values with their setting, such as `alpha 0.1`."""
    given = {path: run.at[path] for path in paths if run.at.get(path) is not None}
    return [
        str(value) if path.endswith(".name") else f"{path.rpartition('.')[2]} {write_value(value)}"
        for path, value in given.items()
    ]


def write_value(value: Any) -> str:
    """Write a setting's value."""
    return value if isinstance(value, str) else json.dumps(value)


def judge_world(label: str, runs: Sequence[Run], defenses: Mapping[str, str]) -> World:
    """Judge all defenses in one world, over the seeds with which FedAvg learns the backdoor or is not known yet."""
    own = group_runs(runs, lambda run: defenses[run.name])
    seeds = list(dict.fromkeys(run.at["seed"] for run in runs))
    learned = read_learned(own.get(UNDEFENDED, []))
    state = "clean" if runs[0].at["attack.name"] == NOBODY else describe_state(learned)
    counting = [seed for seed in seeds if learned.get(seed, 1.0) > LEARNED] if state == "counts" else seeds
    fedavg, ideal = (index_by_seed(own.get(name, [])) for name in (UNDEFENDED, CLEAN))
    trials = {}
    for name, found in own.items():
        of = [run for run in found if run.at["seed"] in counting]
        compared = tuple(compare_run(run, fedavg, ideal) for run in of if run.state == "finished")
        trials[name] = Trial(state, compared, len(of))
    return World(label, state, fmean(learned.values()) if learned else None, trials)


def read_learned(fedavg: Iterable[Run]) -> dict[int, float]:
    """Return FedAvg's backdoor accuracy in the last round by seed, as far as it is known."""
    return {run.at["seed"]: known for run in fedavg if (known := run.metrics.get("last_backdoor_accuracy")) is not None}


def describe_state(learned: Mapping[int, float]) -> State:
    """Return the state of a world with an attack."""
    if not learned:
        return "unknown"
    return "counts" if max(learned.values()) > LEARNED else "harmless"


def index_by_seed(runs: Iterable[Run]) -> dict[int, Mapping[str, float]]:
    """Return the metrics of finished runs by their seed."""
    return {run.at["seed"]: run.metrics for run in runs if run.state == "finished"}


def compare_run(
    run: Run, fedavg: Mapping[int, Mapping[str, float]], ideal: Mapping[int, Mapping[str, float]]
) -> Comparison:
    """Compare a run with those of FedAvg and Ideal with its seed."""
    seed, own = run.at["seed"], run.metrics
    plain, clean = fedavg.get(seed, {}), ideal.get(seed, {})
    numbers = {
        "above_last": subtract_metric(own, clean, "last_backdoor_accuracy"),
        "above_best": subtract_metric(own, clean, "backdoor_accuracy"),
        "main_lost": subtract_metric(plain, own, "last_main_accuracy"),
        "infected_elected": own.get("false_positive_rate"),
        "honest_left_out": own.get("false_negative_rate"),
        "seconds": own.get("defense_seconds"),
    }
    return Comparison(run.name, seed, {name: value for name, value in numbers.items() if value is not None})


def subtract_metric(first: Mapping[str, float], second: Mapping[str, float], metric: str) -> float | None:
    """Return the difference of a metric; None unless both runs have it."""
    return first[metric] - second[metric] if metric in first and metric in second else None
