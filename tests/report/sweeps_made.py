"""Made-up sweeps: folders as `snowball sweep` leaves them, with runs of a few small rounds."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from snowball.records.files import write_json
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder

At = dict[str, Any]
AXES: dict[str, Sequence[Any]] = {
    "data.name": ["mnist"],
    "attack.name": ["cba"],
    "defense.name": ["ideal", "fedavg", "krum", "snowball"],
    "seed": [1, 2, 3],
}
BACKDOORS = {"ideal": 0.001, "fedavg": 0.99, "krum": 0.6, "snowball": 0.002}
TABLE = {
    "rows": ["defense.name"],
    "columns": ["data.name", "attack.name"],
    "values": ["backdoor_accuracy", "main_accuracy"],
}


def round_of(at: At, number: int) -> RoundRecord:
    """A small round of the run at this place: the main accuracy rises, the backdoor depends on defense and seed."""
    backdoor = BACKDOORS.get(at["defense.name"], 0.3) + 0.001 * at["seed"]
    infected = at["defense.name"] == "fedavg"
    return {
        "round": number,
        "participants": ["a", "b", "c", "d"],
        "malicious": [True, False, False, False],
        "elected": [infected, True, True, False],
        "main_accuracy": min(0.5 + 0.1 * number + 0.01 * at["seed"], 0.99),
        "backdoor_accuracy": backdoor,
        "false_positive_rate": float(infected),
        "false_negative_rate": 1 / 3,
        "seconds": {"train": 4.0, "defense": 0.1 * number, "evaluate": 0.5},
        "facts": {"votes": [1.0, 2.0, 3.0, 4.0]},
        "map": [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]],
    }


def stopping_round_of(at: At, number: int) -> RoundRecord:
    """A round of an attack that stops after the second: the backdoor loses a third of itself in each later round."""
    record, after = round_of(at, number), max(0, number - 2)
    malicious = [number <= 2, False, False, False]
    return {**record, "malicious": malicious, "backdoor_accuracy": 0.9 * (2 / 3) ** after}


def settings_of(at: At) -> dict[str, Any]:
    """The settings of a run at this place, nested as an experiment's are; three rounds, unless the place says."""
    settings: dict[str, Any] = {"rounds": 3, "cohort": 4}
    for path, value in at.items():
        *sections, name = path.split(".")
        inner = settings
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return settings


def run_name(at: At) -> str:
    """A run's name, with the hash of its settings behind."""
    canonical = json.dumps(settings_of(at), sort_keys=True, separators=(",", ":"))
    parts = (at["data.name"], at["attack.name"], at["defense.name"], at["seed"])
    return "-".join(map(str, (*parts, hashlib.sha256(canonical.encode()).hexdigest()[:8])))


def make_sweep(
    folder: Path,
    axes: Mapping[str, Sequence[Any]] | None = None,
    make_round: Callable[[At, int], RoundRecord] = round_of,
    there: Callable[[At], bool] = lambda at: True,
    **manifest: Any,
) -> Path:
    """A sweep over the product of the axes, AXES unless they are given, with the runs that are to be there finished.

    Further arguments go into the manifest: name, title, published, table, figure, ...
    """
    ranges = {**AXES, **(axes or {})}
    places = [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]
    for at in filter(there, places):
        make_run(folder / run_name(at), at, make_round)
    content = {
        "name": "cpu/table1", "title": "A made-up table", "published": None, "table": TABLE, "figure": None,
        "axes": list(ranges), "runs": [{"folder": run_name(at), "at": at} for at in places],
    } | manifest  # fmt: skip
    file = folder / "sweeps" / f"{content['name'].replace('/', '-')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, content)
    return file


def make_run(path: Path, at: At, make_round: Callable[[At, int], RoundRecord] = round_of) -> RunFolder:
    """The finished run at this place, unless it is there."""
    if (path / "run.json").exists():
        return RunFolder.open(path)
    settings = settings_of(at)
    run = RunFolder.create(path, {"settings": settings})
    for number in range(1, settings["rounds"] + 1):
        run.append(make_round(at, number))
    run.write_summary()
    return run
