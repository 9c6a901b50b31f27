"""Sweeps, read from their folders: the runs that a grid asks for, their settings, states and metrics."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from snowball.errors import RunError
from snowball.records.run import ROUNDS, SUMMARY
from snowball.records.run_names import hash_settings
from snowball.records.sweep import MANIFESTS, Manifest, are_texts, read_failed, read_manifest
from snowball.records.text import escape_text
from snowball.registry import suggest_or_list
from snowball.report.run_metrics import METRICS, Metric, RunMetrics, read_run_metrics
from snowball.report.runs import note_faults

__all__ = ["METRICS", "Metric", "Run", "State", "Sweep", "read_published_numbers", "read_sweeps"]

MAX_SENTENCE_CHARS, MAX_CELLS = 400, 10_000
"""The most characters of a name or a sentence that are shown, and cells of a table."""

PAPER_ORDER = (
    "summary",
    *(f"table{number}" for number in (1, 2, 3, 5, 6)),
    *("curves", "updates", "distances", "poison-ratio", "latent", "vae-size", "vae-training", "time"),
    *("label-skew", "full", "defaults", "judges", "effort", "dnc-columns"),
)
"""The grids without their folder: the headline, the paper's tables and figures in order, then our own checks."""

State = Literal["finished", "unfinished", "failed", "broken", "missing"]


@dataclass(frozen=True)
class Run:
    """A run that a sweep asks for.

    Attributes:
        at: the settings that locate it in the sweep, by path.
        metrics: its numbers by name, if it is finished; those with nothing to measure are missing.
        sentence: why it failed, or why it cannot be used.
    """

    name: str
    folder: Path
    at: dict[str, Any]
    state: State = "missing"
    metrics: dict[str, float] = field(default_factory=dict)
    sentence: str = ""


@dataclass(frozen=True)
class Sweep:
    """A grid and its runs.

    Attributes:
        published: the key of the published numbers to compare with.
        table: rows, columns and values, as in the grid's file.
        figure: the figure to draw, as in the grid's file.
        leaderboard: whether to rank the defenses.
    """

    folder: Path
    name: str
    title: str
    published: str | None
    table: dict[str, Any] | None
    figure: dict[str, Any] | None
    runs: list[Run]
    leaderboard: bool = False


def read_published_numbers() -> dict[str, Any]:
    """Read the paper's numbers by table: their source, and the numbers with their settings."""
    numbers: dict[str, Any] = json.loads((files("snowball.report") / "published.json").read_text(encoding="utf-8"))
    return numbers


def read_sweeps(paths: Iterable[str | Path]) -> tuple[list[Sweep], list[str]]:
    """Read the sweeps in these folders, at any depth; also return a sentence for everything that cannot be used."""
    faults: list[str] = []
    sweeps: list[Sweep] = []
    for file in find_manifests(paths):
        with note_faults(faults):
            sweeps.append(build_sweep(read_manifest(file), file.parent.parent, file, faults))
    timed = {run.folder for sweep in sweeps if is_timed(sweep) for run in sweep.runs}
    outcome = cache(lambda folder: read_run_metrics(folder, folder in timed))  # grids share runs
    failed = cache(lambda folder: read_failure_sentences(folder, faults))
    sweeps = [
        replace(sweep, runs=[read_run(run, failed(sweep.folder), outcome, faults) for run in sweep.runs])
        for sweep in sweeps
    ]
    sweeps.sort(key=lambda sweep: rank_sweep(sweep.name))
    return sweeps, [escape_text(fault, MAX_SENTENCE_CHARS) for fault in dict.fromkeys(faults)]


def rank_sweep(name: str) -> int:
    """Return a sweep's place in the paper's order; other sweeps follow, in the order in which they are found."""
    own = name.partition("/")[2]
    return PAPER_ORDER.index(own) if own in PAPER_ORDER else len(PAPER_ORDER)


def find_manifests(paths: Iterable[str | Path]) -> list[Path]:
    """Find the manifests in these folders, each once; a run's folder may be called sweeps too."""
    found = (file for path in paths for file in sorted(Path(path).rglob(f"{MANIFESTS}/*.json")))
    return list({file.resolve(): file for file in found if not (file.parent / ROUNDS).exists()}.values())


def build_sweep(manifest: Manifest, folder: Path, source: str | Path, faults: list[str]) -> Sweep:
    """Build the sweep of a manifest, before any run is read; faults of its table name `source`."""
    sweep = Sweep(
        folder=folder,
        name=escape_text(manifest.name, MAX_SENTENCE_CHARS),
        title=escape_text(manifest.title or manifest.name, MAX_SENTENCE_CHARS),
        published=_check_published(manifest.published, source, faults),
        table=_check_table(manifest.table, source, faults),
        figure=manifest.figure,
        runs=[Run(run.folder, folder / run.folder, run.at) for run in manifest.runs],
        leaderboard=manifest.leaderboard,
    )
    _refuse_large(sweep, source)
    return sweep


def _check_published(published: str | None, file: str | Path, faults: list[str]) -> str | None:
    """Return the key, or None with a fault if there are no numbers under it."""
    with note_faults(faults):
        if published is not None and published not in (keys := read_published_numbers()):
            raise RunError(f"{file} asks for published numbers {published[:60]!r}{suggest_or_list(published, keys)}")
        return published
    return None


def _check_table(table: dict[str, Any] | None, file: str | Path, faults: list[str]) -> dict[str, Any] | None:
    """Return the table, or None with a fault if a part of it is not a list of names or a value is not a metric."""
    with note_faults(faults):
        for part in ("rows", "columns", "values"):
            if not are_texts((table or {}).get(part, [])):
                raise RunError(f"{file} has a table whose {part} are not a list of names")
        worst = (table or {}).get("worst")
        if worst is not None and not are_texts([worst]):
            raise RunError(f"{file} has a table of the worst of {ascii(worst)[:60]}, which is not a setting")
        for value in (table or {}).get("values", []):
            if value not in METRICS:
                raise RunError(
                    f"{file} has a table of {value[:60]!r}, which is not a metric{suggest_or_list(value, METRICS)}"
                )
        return table
    return None


def choose_layout(sweep: Sweep) -> tuple[list[str], list[str], list[str]]:
    """Return paths of rows, paths of columns, and metrics: as the table says, or one row per defense.

    Other settings in which runs differ, except seeds and the one whose worst value is shown, become columns too, so
    that no mean mixes them.
    """
    table = sweep.table or {}
    rows, columns = table.get("rows") or ["defense.name"], table.get("columns", [])
    worst = [table["worst"]] if table.get("worst") else []
    columns = [*columns, *find_mixed_settings(sweep.runs, [*rows, *columns, *worst])]
    return rows, columns, table.get("values") or ["backdoor_accuracy", "main_accuracy"]


def find_mixed_settings(runs: Iterable[Run], named: Sequence[str]) -> list[str]:
    """Find the settings, except seeds, in which runs differ although they agree in all settings that are named."""
    runs = list(runs)
    alike = {locate_run(run, named) for run in runs}
    others = dict.fromkeys(path for run in runs for path in run.at if path not in (*named, "seed"))
    return [path for path in others if len({locate_run(run, [*named, path]) for run in runs}) > len(alike)]


def locate_run(run: Run, paths: Iterable[str]) -> str:
    """Return a run's values along these paths as a key."""
    return json.dumps([run.at.get(path) for path in paths], sort_keys=True)


def _refuse_large(sweep: Sweep, file: str | Path) -> None:
    rows, columns = ({locate_run(run, paths) for run in sweep.runs} for paths in choose_layout(sweep)[:2])
    if len(rows) * len(columns) > MAX_CELLS:
        raise RunError(
            f"{file} asks for a table of {len(rows)} rows and {len(columns)} columns, over {MAX_CELLS} cells"
        )


def is_timed(sweep: Sweep) -> bool:
    """Whether a table, a figure or a leaderboard shows times, so that every round must be read."""
    if sweep.leaderboard:
        return True
    wanted = json.dumps([sweep.table, sweep.figure])
    return any(metric.timed and name in wanted for name, metric in METRICS.items())


def read_failure_sentences(folder: Path, faults: list[str]) -> dict[str, str]:
    """Read the sentences of the runs that failed, by name, in the form in which they are shown."""
    with note_faults(faults):
        return {name: escape_text(sentence, MAX_SENTENCE_CHARS) for name, sentence in read_failed(folder).items()}
    return {}


def read_run(run: Run, failed: dict[str, str], outcome: Callable[[Path], RunMetrics], faults: list[str]) -> Run:
    """Return the run with its state, and its metrics if it is finished."""
    if run.name in failed and not (run.folder / SUMMARY).exists():
        faults.append(f"{run.folder} failed: {failed[run.name]}")
        return replace(run, state="failed", sentence=failed[run.name])
    if not run.folder.exists():
        return run
    try:
        settings, metrics = outcome(run.folder)
        refuse_other_run(run, settings)
    except (RunError, OSError) as error:
        faults.append(str(error))
        return replace(run, state="broken", sentence=escape_text(str(error), MAX_SENTENCE_CHARS))
    if metrics is None:
        faults.append(f"{run.folder} is not finished: it has no {SUMMARY}")
        return replace(run, state="unfinished")
    return replace(run, state="finished", metrics=metrics)


def refuse_other_run(run: Run, settings: dict[str, Any]) -> None:
    """Refuse a folder whose settings are not those of the run's name and of its manifest."""
    for path, value in run.at.items():
        if (found := _read_setting(settings, path)) != value:
            raise RunError(f"{run.folder} is another run than its sweep's: {path} is {found!r} in it, not {value!r}")
    digest = hash_settings(settings)
    if run.name.rpartition("-")[2] != digest:
        raise RunError(f"{run.folder} holds other settings than its name says: theirs would end in {digest}")


def _read_setting(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings
