"""The commands `bench` and `doctor`."""

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
    """The benchmarks."""

    elections = "elections"
    training = "training"


@app.command("bench")
def run_benchmark(
    what: Annotated[Bench, typer.Argument(help="What to time.")],
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer repeats, epochs and columns.")] = False,
    as_json: Json = False,
    device: Annotated[Device, typer.Option(help="Device that trains the clients.")] = Device.cpu,
) -> None:
    """Time elections, or training, against plain code."""
    if what is Bench.elections and device is not Device.cpu:
        raise SettingError(f"--device {device} needs `bench training`: elections run on the CPU")
    benchmark = load_benchmark(what)
    results = benchmark.run(quick, **({"device": device.value} if what is Bench.training else {}))
    typer.echo(json.dumps(results, indent=2) if as_json else benchmark.format_cases(results["cases"]))


def load_benchmark(name: str) -> Any:
    """Import a benchmark of speed from the checkout; an installation has none."""
    import importlib

    checkout = Path(__file__).parents[3]
    file = checkout / "benchmarks" / "speed" / f"{name}.py"
    if not file.is_file():
        raise MissingExtra(f"benchmarks need a checkout of the project; {file} does not exist")
    sys.path.insert(0, str(checkout))
    return importlib.import_module(f"benchmarks.speed.{name}")


@app.command("doctor")
def run_doctor() -> None:
    """Check that this machine has what runs need."""
    from snowball.cli.doctor import run_checks

    findings = run_checks()
    for finding in findings:
        typer.echo(f"{'ok ' if finding.passed else 'BAD'} {finding.name}: {finding.detail}")
    if not all(finding.passed for finding in findings):
        raise typer.Exit(2)
