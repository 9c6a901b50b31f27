"""The commands `bench` and `doctor`."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from snowball.cli.application import Json, app
from snowball.errors import SettingError
from snowball.sim.engines.choice import Device

CHECKOUT = Path(__file__).parents[3]
"""The folder of the checkout, if the package runs from one."""


class Bench(StrEnum):
    """The benchmarks."""

    elections = "elections"
    guard = "guard"
    training = "training"


def run_benchmark(
    what: Annotated[Bench, typer.Argument(help="What to time.")],
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer repeats, epochs and columns.")] = False,
    as_json: Json = False,
    device: Annotated[Device, typer.Option(help="Device that trains the clients.")] = Device.cpu,
) -> None:
    """Time elections, a guard or training against plain code."""
    if what is not Bench.training and device is not Device.cpu:
        raise SettingError(f"--device {device} needs `bench training`: all else runs on the CPU")
    benchmark = load_benchmark(what)
    results = benchmark.run(quick, **({"device": device.value} if what is Bench.training else {}))
    typer.echo(json.dumps(results, indent=2) if as_json else benchmark.format_cases(results["cases"]))


def load_benchmark(name: str) -> Any:
    """Import a benchmark of speed from the checkout."""
    import importlib

    sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module(f"benchmarks.speed.{name}")


if (CHECKOUT / "benchmarks" / "speed").is_dir():  # a wheel has no benchmarks
    app.command("bench")(run_benchmark)


@app.command("doctor")
def run_doctor() -> None:
    """Check what this machine has, and say what to do about the rest.

    "ok" is fine, "no" is optional and not there, "BAD" needs your attention.
    """
    from snowball.cli.doctor import run_checks

    findings = run_checks()
    for finding in findings:
        typer.echo(f"{finding.state:3} {finding.name}: {finding.detail}")
    if any(finding.state == "BAD" for finding in findings):
        raise typer.Exit(2)
