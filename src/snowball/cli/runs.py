"""The commands `demo` and `run`."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import EXIT_STOPPED, Out, app
from snowball.cli.reports import show_table
from snowball.errors import SettingError
from snowball.sim.engines.choice import Device, EngineName, choose_engine

if TYPE_CHECKING:
    from snowball.records.rounds import RoundRecord
    from snowball.sim.engines.base import Engine
    from snowball.sim.experiment import Experiment
    from snowball.sim.federation import Federation


@app.command("demo")
def run_demo(
    out: Out = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing demo in the folder.")] = False,
) -> None:
    """Compare FedAvg and Snowball on the shipped sample, in minutes."""
    engine = choose_engine(EngineName.processes)
    from snowball.report import write_html
    from snowball.sim.presets import load_experiment

    folder = out or Path("runs") / f"demo-{seed}"
    for defense in ("fedavg", "snowball"):
        typer.echo(f"{defense}: a federation of 100 clients, 20 of them malicious")
        experiment = load_experiment("demo", [f"seed={seed}", f"defense.name={defense}"])
        run_to_end(experiment, folder / defense, engine, True, overwrite)
    folders = show_table([folder / "fedavg", folder / "snowball"])
    write_html(folders, folder / "report.html")
    typer.echo(f"The report is {folder / 'report.html'}: open it in a browser.")


@app.command("run")
def run_experiment(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE", help="A preset (see `snowball list presets`) or a TOML file.")
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Change a setting, e.g. defense.name=krum; repeatable."),
    ] = None,
    out: Out = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes (default: all cores).")] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="How to train clients (default: processes; vmap with --device cuda).")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(min=1, help="Clients that vmap trains at once (default: as many as fit).")
    ] = None,
    device: Annotated[Device, typer.Option(help="Device that trains clients and Snowball's VAE.")] = Device.cpu,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
) -> None:
    """Run one experiment."""
    if resume and overwrite:
        raise SettingError("--resume continues a run and --overwrite replaces it: give only one of them")
    chosen = choose_engine(engine, device, workers, chunk)
    from snowball.records.presets import describe_presets
    from snowball.sim.presets import load_experiment

    experiment = load_experiment(source, assignments or ())
    name = source.replace("/", "-") if source in describe_presets() else Path(source).stem
    folder = out or Path("runs") / f"{name}-{experiment.seed}"
    run_to_end(experiment, folder, chosen, resume, overwrite)
    show_table([folder])


def run_to_end(
    experiment: "Experiment", folder: Path, engine: "Callable[[Federation], Engine]", resume: bool, overwrite: bool
) -> None:
    """Run an experiment to its end and show its progress."""
    from snowball.sim.run import is_finished, run_experiment

    if resume and not overwrite and is_finished(folder, experiment):
        typer.echo(f"{folder} already has all of its {experiment.rounds} rounds")
        return
    rounds = run_experiment(experiment, folder, engine, resume and not overwrite, overwrite)
    try:
        show_progress(rounds, experiment.rounds)
    except KeyboardInterrupt:
        again = "the same command" if resume else "the same command plus --resume"
        typer.echo(f"stopped; resume with {again}; the rounds so far are in {folder}", err=True)
        raise typer.Exit(EXIT_STOPPED) from None


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
