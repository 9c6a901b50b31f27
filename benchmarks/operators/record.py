"""One record per run: accuracies of the last model, how often each site was left out, and what took part in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.files import shorten_numbers
from benchmarks.operators.cases import Case, task
from snowball.errors import RunError
from snowball.records.audit import AuditEntry, read_audit
from snowball.records.files import read_json, remove_path, write_json

PACKAGES = ("snowball-fl", "torch", "flwr", "nvflare")


class Result:
    """What a run leaves behind.

    Attributes:
        names: the sites' names by the ids in the audit, where they differ.
    """

    def __init__(self, model: Mapping[str, Any], audit: Path, names: Mapping[str, str] | None = None) -> None:
        self.model, self.audit, self.names = model, audit, names or {}


Run = Callable[[Case, Path], Result]
"""Makes a run in a folder."""


def describe_case(case: Case, way: str) -> dict[str, Any]:
    """Return a record's settings."""
    return {"way": way, **case._asdict(), "sizes": list(case.sizes), "hostile": [*map(name_site, case.draw_hostile())]}


def name_site(site: int) -> str:
    """Return a site's name."""
    return f"site-{site}"


def is_recorded(folder: Path, case: Case) -> bool:
    """Whether a folder has the record of this very run."""
    path = folder / f"{case.name}.json"
    if not path.exists():
        return False
    settings = describe_case(case, folder.name)
    record = read_json(path)
    return all(record.get(name) == value for name, value in settings.items())


def record_run(run: Run, case: Case, way: str, folder: Path) -> dict[str, Any]:
    """Make a run, and write its record."""
    work, start = folder / case.name, monotonic()
    if work.exists():  # of a run that was stopped
        remove_path(work)
    work.mkdir(parents=True)
    result = run(case, work)
    entries = read_audit(result.audit)
    if len(entries) != case.rounds:
        raise RunError(f"{result.audit} has {len(entries)} rounds, expected {case.rounds}")
    record = {
        **describe_case(case, way),
        **task.measure_model(result.model),
        **count_sites(entries, result.names),
        "outcomes": dict(Counter(entry["outcome"] for entry in entries)),
        "versions": find_versions(),
        "seconds": monotonic() - start,
    }
    write_json(folder / f"{case.name}.json", shorten_numbers(record))
    return record


def count_sites(entries: Iterable[AuditEntry], names: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Count the rounds in which each site was left out, suspected, dropped and silent."""
    counts: dict[str, Counter[str]] = {part: Counter() for part in ("left_out", "suspects", "dropped", "silent")}
    for entry in entries:
        dropped = [fault["client"] for fault in entry["dropped"]]
        for part, clients in (
            ("dropped", dropped),
            *((part, entry[part]) for part in ("left_out", "suspects", "silent")),
        ):
            counts[part].update({names.get(client, client) for client in clients})
    return {part: dict(sorted(count.items())) for part, count in counts.items()}


def find_versions() -> dict[str, str]:
    """Return the versions of the packages that are installed here."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
