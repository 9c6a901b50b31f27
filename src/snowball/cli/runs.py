"""The commands `demo` and `run`."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import app
from snowball.cli.reports import show_headline, show_runs
from snowball.cli.stopping import exit_stopped
from snowball.errors import RunError, SettingError
from snowball.registry import suggest_name
from snowball.sim.engines.choice import Device, EngineName, choose_engine

if TYPE_CHECKING:
    from snowball.records.rounds import RoundRecord
    from snowball.sim.engines.base import Engine
    from snowball.sim.experiment import Experiment
    from snowball.sim.federation import Federation
    from snowball.trackers import Tracker

DEMO_DEFENSES = ("fedavg", "snowball", "snowball-plus")
"""The defenses that the demo compares: none, the paper's and ours."""


@app.command("demo")
def run_demo(
    out: Annotated[Path | None, typer.Option(help="Output folder (default: runs/demo-SEED).")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing demo in the folder.")] = False,
) -> None:
    """Compare FedAvg, Snowball and Snowball-plus on the shipped sample, in minutes."""
    engine = choose_engine(EngineName.processes)
    from snowball.sim.presets import load_experiment

    folder = out or Path("runs") / f"demo-{seed}"
    for defense in DEMO_DEFENSES:
        typer.echo(f"{defense}: a federation of 100 clients, 20 of them malicious")
        experiment = load_experiment("demo", [f"seed={seed}", f"defense.name={defense}"])
        run_to_end(experiment, folder / defense, engine, True, overwrite)
    from snowball.report import build_rows, find_runs, write_html

    folders = find_runs([folder / defense for defense in DEMO_DEFENSES])
    rows = build_rows(folders)
    show_runs(rows)
    write_html(folders, folder / "report.html")
    typer.echo(f"The report is {folder / 'report.html'}: open it in a browser.")
    show_headline(rows)


@app.command("run")
def run_experiment(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `snowball list presets`) or a TOML file.")
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting, e.g. defense.name=krum; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder (default: runs/PRESET-DEFENSE-ATTACK-SEED).")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes (default: all cores).")] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="How to train clients (default: processes; vmap with --device cuda).")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, help="Clients that vmap trains at once (default: as many as fit).")
    ] = None,
    device: Annotated[Device, typer.Option(help="Device that trains clients and Snowball's VAE.")] = Device.cpu,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run, or add rounds to it.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER", help="Also log to csv, tensorboard, mlflow, wandb or module:Class; repeatable."
        ),
    ] = None,
) -> None:
    """Run one experiment.

    With --resume, `--set rounds=N` may add rounds to a run.
    """
    if resume and overwrite:
        raise SettingError("--resume continues a run and --overwrite replaces it: give only one of them")
    chosen = choose_engine(engine, device, workers, chunk)
    from snowball.records.presets import describe_presets
    from snowball.sim.presets import load_experiment
    from snowball.trackers import build_trackers

    experiment, trackers = load_experiment(source, assignments or ()), build_trackers(track or ())
    name = source.replace("/", "-") if source in describe_presets() else Path(source).stem
    folder = out or Path("runs") / name_folder(name, experiment)
    if resume and not holds_run(folder):
        raise RunError(f"there is no run in {folder} to --resume{suggest_folder(folder)}")
    run_to_end(experiment, folder, chosen, resume, overwrite, trackers)
    from snowball.report import build_rows, find_runs

    rows = build_rows(find_runs([folder]))
    show_runs(rows)
    typer.echo(f"The results are in {folder}.")
    show_headline(rows)


def name_folder(name: str, experiment: "Experiment") -> str:
    """Name the folder of a run by its preset, defense, attack and seed."""
    parts = (name, experiment.defense.name, experiment.attack.name, str(experiment.seed))
    return re.sub(r"[^\w.-]", "_", "-".join(parts))


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run."""
    from snowball.records.run import RUN

    return (folder / RUN).exists()


def suggest_folder(folder: Path) -> str:
    """Return which run beside a folder may have been meant, or else what to do."""
    beside = [each.name for each in folder.parent.iterdir() if holds_run(each)] if folder.parent.is_dir() else []
    return suggest_name(folder.name, beside) or "; leave --resume out to start one"


def run_to_end(
    experiment: "Experiment",
    folder: Path,
    engine: "Callable[[Federation], Engine]",
    resume: bool,
    overwrite: bool,
    trackers: "Mapping[str, Tracker] | None" = None,
) -> None:
    """Run an experiment to its end and show its progress."""
    from snowball.sim.run import is_finished, run_experiment

    if resume and not overwrite and is_finished(folder, experiment):
        typer.echo(f"{folder} already has all of its {experiment.rounds} rounds")
        return
    continues = resume and not overwrite
    rounds = run_experiment(experiment, folder, engine, continues, overwrite, trackers=trackers)
    try:
        with closing(rounds):
            show_progress(rounds, experiment.rounds)
    except KeyboardInterrupt:
        if not holds_run(folder):
            raise  # nothing to resume
        again = "the same command" if resume else "the same command plus --resume"
        exit_stopped(f"resume with {again}; the rounds so far are in {folder}")


def show_progress(rounds: "Iterable[RoundRecord]", total: int) -> None:
    """Show the rounds: as a progress bar on a terminal, else as one line per round."""
    from rich.console import Console

    from snowball.api.progress import describe_round, open_bar

    if not sys.stdout.isatty():
        for record in rounds:
            typer.echo(f"round {record['round']} of {total}: {describe_round(record)}")
        return
    with open_bar(total, Console()) as update:
        for record in rounds:
            update(record["round"], describe_round(record))
