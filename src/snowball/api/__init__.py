"""Whole experiments in one call: what the commands `run`, `sweep` and `rehearse` do, for scripts and notebooks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from snowball.api.frames import Frame, make_frame
from snowball.api.progress import describe_round, show_progress
from snowball.api.rehearsal import RehearsalResult, judge_rehearsal
from snowball.api.result import RunResult
from snowball.data.own import OwnData, Samples
from snowball.errors import SettingError
from snowball.models.own import OwnModel
from snowball.records.lock import exclusive_lock
from snowball.records.rounds import RoundRecord
from snowball.rehearsal.plan import plan_rehearsal
from snowball.rehearsal.settings import read_federation
from snowball.report import write_report as report
from snowball.report.run_metrics import METRICS, read_run_metrics
from snowball.sim.engines.base import Engine
from snowball.sim.engines.choice import EngineName, choose_engine
from snowball.sim.engines.forkserver import leave_if_importing
from snowball.sim.engines.processes import count_cores
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate as simulate_federation
from snowball.sim.presets import Overrides, Source, load_experiment
from snowball.sim.run import is_finished, run_experiment
from snowball.sweeps.executors.local import LocalExecutor
from snowball.sweeps.executors.serial import SerialExecutor
from snowball.sweeps.grid import Grid, build_grid, name_run, read_grid
from snowball.sweeps.progress import Estimate
from snowball.sweeps.sweep import Executor, prepare_sweep, run_sweep
from snowball.trackers import build_trackers

__all__ = [
    "RehearsalResult",
    "RunResult",
    "load_experiment",
    "rehearse",
    "report",
    "run",
    "simulate",
    "sweep",
]

RUNS = Path("runs")
"""The folder, in the working folder, that runs go to unless another one is given."""

REHEARSALS = RUNS / "rehearsal"
"""The folder for the runs of rehearsals."""


def simulate(experiment: Experiment) -> Iterator[RoundRecord]:
    """Run an experiment in memory and yield one record per round."""
    yield from simulate_federation(Federation.build(experiment))


def run(
    source: Source,
    overrides: Overrides = (),
    *,
    data: OwnData | Samples | None = None,
    model: OwnModel | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    resume: bool = True,
    progress: bool = True,
    track: Sequence[str] = (),
) -> RunResult:
    """Run an experiment into a folder and return its result.

    A run that was interrupted continues after its last round, and a finished one is only read. A folder that holds
    another run is refused. Results do not depend on `workers`. More than one worker starts processes, so a script must
    call this under `if __name__ == "__main__":`.

    Args:
        source: a preset's name, such as `"demo"`, the path of a TOML file, or an experiment.
        overrides: settings to change, such as `{"defense.name": "krum"}`.
        data: data of your own instead of the data set that the settings name: a torch Dataset, a pair
            (inputs, labels), or an `OwnData` with test samples and client ids.
        model: a model of your own: a module, or a function without arguments that makes one.
        out: the folder for the records (default: a folder in `runs/` whose name follows from all settings, and from
            your own data and model).
        workers: processes that train clients.
        resume: False replaces what the folder holds of this run, for example after a change of your own defense.
        progress: show a line of progress if this is a notebook or a terminal.
        track: trackers that the rounds also go to, such as `["tensorboard"]`.
    """
    experiment = load_experiment(source, overrides, data=data, model=model)
    engine, trackers = choose_workers(workers), build_trackers(require_names("track", track))
    folder = RUNS / name_run(experiment) if out is None else Path(out)
    finished = is_finished(folder, experiment)  # refuses the folder of another run
    if not (finished and resume):
        rounds = run_experiment(experiment, folder, engine, resume, overwrite=not resume, trackers=trackers)
        with closing(rounds), show_progress(experiment.rounds, progress) as update, explain_interrupt(folder):
            for record in rounds:
                update(record["round"], describe_round(record))
    return RunResult(folder)


def sweep(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    preset: Source | None = None,
    seeds: Iterable[int] | None = None,
    out: str | Path = RUNS,
    jobs: int | None = None,
    retry: bool = False,
    progress: bool = True,
) -> Frame:
    """Run many experiments into a folder and return one row per run, as a pandas DataFrame if there is pandas.

    A row has the settings that the runs differ in, the run's numbers, why it failed, and its folder. Finished runs are
    only read, and interrupted ones continue. Each run has its own process, so a script must call this under
    `if __name__ == "__main__":`.

    Args:
        source: a list of overrides, such as `[{"defense.name": "fedavg"}, {"defense.name": "krum"}]`, a grid's name,
            such as `"cpu/table1"`, or the path of a grid's file.
        preset: the preset, TOML file or experiment that a list of overrides changes; a grid names its own.
        seeds: run every override with each of these seeds (default: the preset's own).
        out: the folder for the runs; it is created if needed.
        jobs: runs at a time (default: all cores).
        retry: also run what failed before.
        progress: show a line of progress if this is a notebook or a terminal.
    """
    leave_if_importing()
    grid, folder = find_grid(source, preset, seeds), Path(out)
    execute = LocalExecutor(count_cores() if jobs is None else require_count("jobs", jobs))
    return make_frame(list_rows(grid, folder, execute_grid(grid, folder, execute, retry, progress)))


def rehearse(
    source: str | Path | None = None,
    *,
    data: str | OwnData | Samples | None = None,
    model: str | OwnModel | None = None,
    out: str | Path = REHEARSALS,
    jobs: int | None = None,
    retry: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RehearsalResult:
    """Rehearse a federation under attacks, with the defenses that fit its size, and return which of them hold.

    `rehearse(sites=8, hostile=1)` takes minutes on the shipped sample. Finished runs are only read, and interrupted
    ones continue. It starts processes, so a script must call this under `if __name__ == "__main__":`.

    Args:
        source: the path of a TOML file with the settings.
        data: a data set's name, or data of your own as for `run`; clients that it comes with are the sites.
        model: a model's name, or a model of your own as for `run`.
        out: the folder for the runs; it is created if needed.
        jobs: processes at a time (default: all cores).
        retry: also run what failed before.
        progress: show a line of progress if this is a notebook or a terminal.
        settings: the federation, such as sites, sizes, rounds, hostile, attacks, defenses and seeds; they replace those
            of the file.
    """
    leave_if_importing()
    workers = count_cores() if jobs is None else require_count("jobs", jobs)
    names = {name: value for name, value in (("data", data), ("model", model)) if isinstance(value, str)}
    rehearsal = plan_rehearsal(
        read_federation(source, settings | names),
        None if isinstance(data, str) else data,
        None if isinstance(model, str) else model,
    )
    execute = SerialExecutor(choose_workers(workers)) if rehearsal.owns_objects else LocalExecutor(workers)
    folder = Path(out)
    execute_grid(rehearsal.grid, folder, execute, retry, progress)
    return judge_rehearsal(rehearsal, folder)


def execute_grid(grid: Grid, folder: Path, execute: Executor, retry: bool, progress: bool) -> dict[str, str]:
    """Execute what a folder lacks of a grid, and return one sentence per run that failed, by name."""
    with exclusive_lock(folder, "sweep"):
        plan = prepare_sweep(grid, folder, retry)
        failed = {each.name: plan.failed[each.name] for each in plan.skipped}
        estimate = Estimate(plan.waiting)
        with (
            closing(run_sweep(plan, folder, execute)) as events,
            show_progress(estimate.rounds, progress and bool(plan.waiting)) as update,
            explain_interrupt(folder),
        ):
            for event in events:
                estimate.update(event)
                failed |= {event.run.name: event.fault} if event.fault else {}
                update(estimate.rounds - sum(estimate.left.values()), f"{estimate.ended} of {len(plan.waiting)} runs")
    return failed


def find_grid(
    source: str | Path | Iterable[Mapping[str, Any]], preset: Source | None, seeds: Iterable[int] | None
) -> Grid:
    """Return the grid of a name or a file, or of a list of overrides."""
    if isinstance(source, str | Path):
        if preset is not None or seeds is not None:
            raise SettingError(f"preset and seeds go with a list of overrides: the grid {str(source)!r} has its own")
        return read_grid(source)
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise SettingError(f"expected a list of overrides, the name of a grid or a grid's file, got {source!r}")
    if preset is None:
        raise SettingError("a list of overrides needs the preset that they change, such as preset='demo'")
    if isinstance(preset, Experiment) and preset.describe_own():
        advice = "call snowball.run for each of the overrides"
        raise SettingError(f"a sweep cannot send own data or an own model to its processes: {advice}")
    return build_grid(preset, source, seeds)


def list_rows(grid: Grid, folder: Path, failed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row per run: the settings that the runs differ in, its numbers, why it failed, and its folder."""
    varied = [
        path for path in grid.runs[0].at if path in grid.axes or len({str(run.at[path]) for run in grid.runs}) > 1
    ]
    rows = []
    for run in grid.runs:
        numbers = {} if run.name in failed else read_run_metrics(folder / run.name, timed=False)[1] or {}
        measured = {name: numbers.get(name) for name, metric in METRICS.items() if metric.read}
        ending = {"failed": failed.get(run.name), "folder": str(folder / run.name)}
        rows.append({**{path: run.at[path] for path in varied}, **measured, **ending})
    return rows


def choose_workers(workers: int) -> Callable[[Federation], Engine]:
    """Return what makes the engine with this many workers; a single one trains in this process."""
    if require_count("workers", workers) == 1:
        return choose_engine(EngineName.serial)
    leave_if_importing()
    return choose_engine(EngineName.processes, workers=workers)


def require_count(name: str, value: int) -> int:
    """Return a number of processes if it is one."""
    if type(value) is not int or value < 1:
        raise SettingError(f"{name} must be a whole number from 1, got {value!r}")
    return value


def require_names(name: str, value: Sequence[str]) -> Sequence[str]:
    """Return a list of names if it is one."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise SettingError(f"{name} must be a list of names, such as ['csv'], got {value!r}")
    return value


@contextmanager
def explain_interrupt(folder: Path) -> Iterator[None]:
    """Add to an interrupt by the user that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"The rounds so far are in {folder}: the same call continues after them.")
        raise
