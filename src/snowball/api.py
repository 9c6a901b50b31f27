"""Whole experiments in one call: what the commands `run` and `sweep` do, for scripts and notebooks."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.report import write_report as report
from snowball.sim.engines.choice import EngineName, choose_engine
from snowball.sim.engines.processes import count_cores
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate as simulate_federation
from snowball.sim.presets import load_experiment
from snowball.sim.run import is_finished, run_experiment
from snowball.sweeps.executors.local import LocalExecutor
from snowball.sweeps.grid import read_grid
from snowball.sweeps.lock import exclusive_lock
from snowball.sweeps.sweep import prepare_sweep, run_sweep

__all__ = ["load_experiment", "report", "run", "simulate", "sweep"]


def simulate(experiment: Experiment) -> Iterator[RoundRecord]:
    """Run an experiment in memory and yield one record per round."""
    yield from simulate_federation(Federation.build(experiment))


def run(source: str | Path, out: str | Path, assignments: Sequence[str] = (), workers: int = 1) -> RunFolder:
    """Run a preset or a TOML file into a folder and return the folder.

    A run that was interrupted continues after its last round; a finished one is left as it is. Results do not depend
    on `workers`. More than one worker starts processes, so a script must call this under `if __name__ == "__main__":`.

    Args:
        source: a preset's name, such as `"demo"`, or the path of a TOML file.
        out: the folder for the records; it is created if needed.
        assignments: settings to change, each written `a.b=c`, such as `"defense.name=krum"`.
        workers: processes that train clients.
    """
    experiment, folder = load_experiment(source, assignments), Path(out)
    engine = choose_engine(EngineName.processes, workers=workers) if workers > 1 else choose_engine(EngineName.serial)
    if not is_finished(folder, experiment):
        for _ in run_experiment(experiment, folder, engine, resume=True):
            pass
    return RunFolder.open(folder)


def sweep(source: str | Path, out: str | Path, jobs: int | None = None, retry: bool = False) -> dict[str, str]:
    """Run a grid of experiments into a folder and return the error of every run that failed, by run name.

    Finished runs are skipped and interrupted ones continue. Each run has its own process, so a script must call this
    under `if __name__ == "__main__":`.

    Args:
        source: a grid's name, such as `"cpu/table1"`, or the path of a TOML file.
        out: the folder for the runs; it is created if needed.
        jobs: runs at a time (default: all cores).
        retry: also run what failed before.
    """
    grid, folder = read_grid(str(source)), Path(out)
    with exclusive_lock(folder):
        plan = prepare_sweep(grid, folder, retry)
        failed = {each.name: plan.failed[each.name] for each in plan.skipped}
        with closing(run_sweep(plan, folder, LocalExecutor(jobs or count_cores()))) as events:
            return failed | {event.run.name: event.fault for event in events if event.fault}
