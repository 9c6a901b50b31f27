"""The command `rehearse`: which defense holds in an operator's federation."""

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snowball.cli.application import TABLE_CHARS, Json, app, build_table
from snowball.cli.stopping import exit_stopped
from snowball.cli.sweeps import SweepEngine, choose_executor, follow_sweep
from snowball.errors import SettingError

if TYPE_CHECKING:
    from snowball.api.rehearsal import RehearsalResult
    from snowball.rehearsal.plan import Rehearsal
    from snowball.sweeps.sweep import Executor, Plan

MAX_LISTED = 5
"""Numbers of hostile sites that are printed."""


@app.command("rehearse")
def rehearse_federation(
    source: Annotated[Path | None, typer.Argument(metavar="FILE", help="A TOML file with the settings below.")] = None,
    sites: Annotated[int | None, typer.Option(help="Number of sites.")] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Examples of each site (default: equal).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (default: 20).")] = None,
    hostile: Annotated[int | None, typer.Option(help="Hostile sites (default: a fifth).")] = None,
    hostile_sites: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Which sites are hostile, from 1 (default: those of middle size)."),
    ] = None,
    per_round: Annotated[int | None, typer.Option(help="Sites per round (default: all, up to 50).")] = None,
    alpha: Annotated[float | None, typer.Option(help="How alike the sites' labels are (default: 1).")] = None,
    data: Annotated[
        str | None, typer.Option(help="A data set or module:attribute (default: the shipped sample).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model or module:Class (default: a small network).")] = None,
    attacks: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Attacks (see `snowball list attacks`).")
    ] = None,
    defenses: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Defenses (default: those that fit the number of sites).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="N,N,...", help="Random seeds (default: 1).")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A=B", help="Another setting of the file, e.g. training.lr=0.05; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder; one subfolder per run.")] = Path("runs/rehearsal"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Parallel runs (default: all cores).")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed runs again.")] = False,
    as_json: Json = False,
) -> None:
    """Rehearse your federation under attacks, and say which defense holds.

    Finished runs are skipped and interrupted ones continue.
    """
    given: dict[str, Any] = {
        "sites": sites,
        "sizes": split_numbers("sizes", sizes),
        "rounds": rounds,
        "hostile": hostile,
        "hostile_sites": split_numbers("hostile-sites", hostile_sites),
        "per_round": per_round,
        "alpha": alpha,
        "data": data,
        "model": model,
        "attacks": split_names(attacks),
        "defenses": split_names(defenses),
        "seeds": split_numbers("seeds", seeds),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        execute = choose_executor(SweepEngine.local, jobs, None)
        result = run_to_result(plan_from(source, changes, assignments or []), out, execute, retry)
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2))
    else:
        show_result(result)
    if any(cell.word == "not run" for cell in result.cells):
        typer.echo(f"some runs failed; {out / 'failed.json'} says why; --retry runs them again", err=True)
        raise typer.Exit(1)


def split_numbers(option: str, text: str | None) -> list[int] | None:
    """Split whole numbers at commas."""
    parts = split_names(text)
    try:
        return None if parts is None else [int(part) for part in parts]
    except ValueError as error:
        raise SettingError(f"--{option} must be whole numbers with commas between them, got {text!r}") from error


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas."""
    return None if text is None else [part.strip() for part in text.split(",")]


def plan_from(source: Path | None, changes: dict[str, Any], assignments: list[str]) -> "Rehearsal":
    """Plan the rehearsal of a file and options; assignments change single settings, also within a section."""
    from snowball.rehearsal.plan import plan_rehearsal
    from snowball.rehearsal.settings import read_federation, read_settings
    from snowball.settings import apply_assignments

    settings = apply_assignments((read_settings(source) if source else {}) | changes, assignments, {})
    return plan_rehearsal(read_federation(None, settings))


def run_to_result(rehearsal: "Rehearsal", folder: Path, execute: "Executor", retry: bool) -> "RehearsalResult":
    """Say what will run and for how long, run it, and judge it."""
    from snowball.api.rehearsal import judge_rehearsal
    from snowball.records.lock import exclusive_lock
    from snowball.sweeps.sweep import prepare_sweep

    typer.echo(describe_sites(rehearsal))
    with exclusive_lock(folder, "sweep"):
        plan = prepare_sweep(rehearsal.grid, folder, retry)
        typer.echo(describe_work(plan, rehearsal, execute.jobs, folder))
        try:
            follow_sweep(plan, folder, execute)
        except KeyboardInterrupt:
            exit_stopped(f"run the same command to continue; the runs so far are in {folder}")
    return judge_rehearsal(rehearsal, folder)


def describe_sites(rehearsal: "Rehearsal") -> str:
    """Describe the federation in one line."""
    sites, settings = rehearsal.sites, rehearsal.settings
    per_round = "" if sites.per_round == len(sites.sizes) else f", {sites.per_round} of them per round"
    return f"{len(sites.sizes)} sites{per_round}, {settings.rounds} rounds; hostile: {describe_hostile(rehearsal)}"


def describe_hostile(rehearsal: "Rehearsal") -> str:
    """Describe the hostile sites."""
    sites, numbers = rehearsal.sites, rehearsal.hostile_sites
    if not numbers:
        return f"{sites.hostile}, drawn by lot"
    listed = ", ".join(map(str, numbers[:MAX_LISTED]))
    more = f" and {len(numbers) - MAX_LISTED} more" if len(numbers) > MAX_LISTED else ""
    share = f"{sites.hostile_share:.1%} of {rehearsal.examples:,} examples"
    return f"site{'s' * (len(numbers) > 1)} {listed}{more}, with {share}"


def describe_work(plan: "Plan", rehearsal: "Rehearsal", jobs: int, folder: Path) -> str:
    """Say what is left to run and about how long that takes, from one round that is run to find out."""
    from snowball.rehearsal.plan import time_round
    from snowball.report.runs import format_duration

    work = f"{len(plan.done)} runs are done, {len(plan.waiting)} to do in {folder}"
    if not plan.waiting:
        return work
    seconds = time_round(rehearsal.grid.runs[0].experiment) * rehearsal.settings.rounds * len(plan.waiting) / jobs
    return f"{work}: about {format_duration(seconds)} with {jobs} at a time"


def show_result(result: "RehearsalResult") -> None:
    """Print the table, the bounds and what to choose."""
    from rich.console import Console

    from snowball.api.rehearsal import BOUNDS
    from snowball.records.text import escape_text
    from snowball.report.sweeps import MAX_SENTENCE_CHARS

    Console(width=None if sys.stdout.isatty() else TABLE_CHARS).print(build_table(result.list_lines()))
    for seed, accuracy in result.clean_accuracy.items():
        typer.echo(f"A plain average that nobody attacks is right on {accuracy:.1%} of the test samples (seed {seed}).")
    backdoor, lost, left_out = (f"{100 * bound:g}" for bound in BOUNDS.values())
    bounds = f"a backdoor up to {backdoor} % above a clean model's, {lost} points of accuracy lost"
    typer.echo(f"Holds: {bounds}, {left_out} % of the honest updates left out; the worst of the seeds counts.")
    typer.echo(escape_text(result.recommendation, MAX_SENTENCE_CHARS))
    if result.guard:
        typer.echo(f"\n    guard = {result.guard}\n")
        typer.echo('Read the audit after some tens of rounds, then change mode to "enforce".')
