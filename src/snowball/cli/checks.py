"""Benchmarks, and whether this machine has what runs need."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from snowball.cli.application import Json, app
from snowball.errors import MissingExtra, SettingError
from snowball.sim.engines.choice import Device


class Bench(StrEnum):
    """What can be timed."""

    elections = "elections"
    training = "training"


@app.command()
def bench(
    what: Annotated[Bench, typer.Argument()],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, epochs and columns.")] = False,
    as_json: Json = False,
    device: Annotated[Device, typer.Option(help="What clients are trained on.")] = Device.cpu,
) -> None:
    """Time the elections, or training and a round, beside the same done plainly."""
    if what is Bench.elections and device is not Device.cpu:
        raise SettingError(f"--device {device} is for bench training: the elections run on the CPU")
    benchmark = load_benchmark(what)
    results = benchmark.run(quick, **({"device": device.value} if what is Bench.training else {}))
    typer.echo(json.dumps(results, indent=2) if as_json else benchmark.table(results["cases"]))


def load_benchmark(name: str) -> Any:
    """A module of the checkout's benchmarks folder, which no installation has."""
    import importlib

    folder = Path(__file__).parents[3] / "benchmarks"
    if not (folder / f"{name}.py").is_file():
        raise MissingExtra(f"benchmarks run from a checkout of the project, and there is no {folder / name}.py")
    sys.path.insert(0, str(folder))  # its modules import each other
    return importlib.import_module(name)


@app.command()
def doctor() -> None:
    """Check that this machine has what runs need."""
    from snowball.cli.doctor import examine

    findings = examine()
    for finding in findings:
        typer.echo(f"{'ok ' if finding.fine else 'BAD'} {finding.name}: {finding.detail}")
    if not all(finding.fine for finding in findings):
        raise typer.Exit(2)
