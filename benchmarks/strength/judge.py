"""Judges defenses: where do they hold, where do they fail, and what do they cost honest clients?

    SNOWBALL_DATA=... python -m benchmarks.strength tune snowball krum --out runs/strength
    SNOWBALL_DATA=... python -m benchmarks.strength report snowball:clusters=11 --out runs/strength --only 'mnist-*'

`tune` has seeds 1 to 3 of MNIST, Fashion-MNIST and CIFAR-10; `report` has seeds 11 to 13, and also FEMNIST and Sent140.
Either mode refuses what only the other has. Two runs go at a time, each in its own folder under DIR/MODE, where it
resumes if it was stopped. The runs of FedAvg and Ideal are made once for all defenses. The results are in
DIR/MODE/strength.json, and on the screen as tables. `--known` takes runs from such files instead of making them again.
docs/strength.md explains how to read the results.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.files import shorten_numbers
from benchmarks.measuring.machine import describe_machine
from benchmarks.strength.headline import (
    Run,
    describe_run,
    judge_cells,
    label_run,
    make_headline,
    tabulate_cells,
    tabulate_headlines,
)
from benchmarks.strength.known import Known, match_runs, read_known
from benchmarks.strength.worlds import (
    MODES,
    Job,
    choose_cells,
    choose_seeds,
    choose_worlds,
    estimate_seconds,
    list_jobs,
    make_experiment,
)
from snowball.errors import SnowballError
from snowball.records.files import write_bytes
from snowball.records.lock import exclusive_lock
from snowball.records.run import RunFolder
from snowball.sim.run import is_finished
from snowball.sweeps.executors.local import LocalExecutor
from snowball.sweeps.grid import PlannedRun, name_run

AT_A_TIME = 2
"""Runs side by side, one core each."""


def plan_runs(jobs: Sequence[Job]) -> dict[Job, PlannedRun]:
    """Plan the run of every job, and parse all before the first one starts; Ideal's runs serve several jobs."""
    planned = {}
    for job in jobs:
        experiment = make_experiment(job)
        planned[job] = PlannedRun(name_run(experiment), experiment, {})
    return planned


def match_known(planned: Mapping[Job, PlannedRun], files: Sequence[Path], mode: str) -> Known:
    """Match the runs of known files with the planned ones, and report how many have other settings."""
    runs = [run for file in files for run in read_known(file, mode)]
    known = match_runs(runs, {job: run.name for job, run in planned.items()})
    if known.ignored:
        print(f"{known.ignored} known runs are ignored: their settings are not those of today", file=sys.stderr)
    return known


def find_waiting(planned: Mapping[Job, PlannedRun], done: Mapping[str, Run], folder: Path) -> dict[str, Job]:
    """Return one job, by run name, for every run that is neither known nor finished in the folder."""
    named: dict[str, Job] = {}
    for job, run in planned.items():
        named.setdefault(run.name, job)
    return {
        name: job
        for name, job in named.items()
        if name not in done and not is_finished(folder / name, planned[job].experiment)
    }


def run_all(planned: Mapping[Job, PlannedRun], waiting: Mapping[str, Job], folder: Path) -> dict[str, str]:
    """Run the waiting jobs, and return the errors of the failed runs by name."""
    faults: dict[str, str] = {}
    ended = 0
    with closing(LocalExecutor(AT_A_TIME)([planned[job] for job in waiting.values()], folder)) as heard:
        for news in heard:
            if news.ended:
                ended += 1
                faults |= {news.run.name: news.fault} if news.fault else {}
                world, attack = waiting[news.run.name].cell
                outcome = f"failed: {news.fault}" if news.fault else "done"
                print(f"{ended} of {len(waiting)}: {world} {attack}, {news.run.name}: {outcome}", file=sys.stderr)
    return faults


def collect_runs(
    planned: Mapping[Job, PlannedRun], done: Mapping[str, Run], faults: Mapping[str, str], folder: Path
) -> Iterator[Run]:
    """Yield the facts of every run that is finished or known, and the error of each run that failed."""
    for job, run in planned.items():
        if run.name in faults:
            yield label_run(job, run.name) | {"fault": faults[run.name]}
        elif is_finished(folder / run.name, run.experiment):  # takes precedence over a file
            yield describe_run(job, run.name, RunFolder.open(folder / run.name))
        elif run.name in done:
            yield done[run.name] | label_run(job, run.name)


def write_result(path: Path, mode: str, headlines: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> None:
    """Write the result, one line per run, in an order that does not depend on which call made it."""
    ordered = sorted(runs, key=lambda run: tuple(run[name] for name in ("seed", "world", "attack", "defense", "run")))
    lines = ",\n  ".join(json.dumps(shorten_numbers(run)) for run in ordered)
    head = json.dumps(
        {"mode": mode, "machine": describe_machine(), "headlines": shorten_numbers(list(headlines))}, indent=1
    )
    write_bytes(path, f'{head[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n'.encode())


def judge_defenses(arguments: argparse.Namespace) -> int:
    """Make the requested runs and report their results; return 1 if runs are missing."""
    mode, folder = MODES[arguments.mode], arguments.out / arguments.mode
    cells = choose_cells(choose_worlds(mode, arguments.only or ("*",)), arguments.attacks)
    planned = plan_runs(jobs := list(list_jobs(cells, arguments.defenses, choose_seeds(mode, arguments.seeds))))
    known = match_known(planned, arguments.known, arguments.mode)
    waiting = find_waiting(planned, known.done, folder)
    minutes = sum(estimate_seconds(job, planned[job].experiment.rounds) for job in waiting.values()) / 60
    total = len({run.name for run in planned.values()})
    print(
        f"{len(waiting)} of {total} runs are to be made, about {minutes:.0f} core-minutes or {minutes / AT_A_TIME:.0f} "
        f"minutes, {AT_A_TIME} at a time, and longer with defenses that take longer than FedAvg",
        file=sys.stderr,
        flush=True,
    )
    if arguments.plan:
        return 0
    faults: dict[str, str] = {}
    with exclusive_lock(folder, "sweep"):
        try:
            faults = run_all(planned, waiting, folder)
        except KeyboardInterrupt:
            print("stopped: what is finished is judged; the same command goes on", file=sys.stderr)
    runs = list(collect_runs(planned, known.done, faults, folder))
    judged = {defense: judge_cells(runs, defense, jobs) for defense in arguments.defenses}
    headlines = [make_headline(cells, defense) for defense, cells in judged.items()]
    write_result(folder / "strength.json", arguments.mode, headlines, [*runs, *known.others])
    tables = [f"{defense}:\n\n{tabulate_cells(cells)}" for defense, cells in judged.items()]
    print("\n\n".join([tabulate_headlines(headlines), *tables]))
    return int(any(headline["missing_runs"] for headline in headlines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; a user's mistake is reported in one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("defenses", nargs="+", metavar="DEFENSE", help="a name, or NAME:setting=value,setting=value")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the runs are")
    parser.add_argument("--only", nargs="+", metavar="WORLD", help="worlds, or patterns of their names")
    parser.add_argument("--attacks", nargs="+", metavar="ATTACK", help="some of the attacks on these worlds")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="some of the mode's seeds")
    parser.add_argument(
        "--known",
        nargs="+",
        type=Path,
        default=(),
        metavar="FILE",
        help="results of earlier calls, whose runs are taken over if their settings are the same",
    )
    parser.add_argument("--plan", action="store_true", help="say how long it will take, and stop")
    try:
        return judge_defenses(parser.parse_args(arguments))
    except SnowballError as error:
        print(f"strength: {error}", file=sys.stderr)
        return 2
