"""The command line. Nothing heavy is imported before a command needs it: `snowball --help` loads no torch."""

import errno
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from snowball.errors import DataError, MissingExtra, RunError, SettingError, SnowballError
from snowball.sim.engines import Device, EngineName, choose

if TYPE_CHECKING:
    from rich.table import Table

    from snowball.records import Record, RunFolder
    from snowball.report import Audit, Sweep
    from snowball.sim.engine import Engine
    from snowball.sim.experiment import Experiment
    from snowball.sim.federation import Federation
    from snowball.sim.sweep import News, Plan, Player

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""

WIDE = 180
"""Characters that the table of runs needs for a row a run."""

RUN_WIDTH = 16
"""Characters that a run with long names gets where the table has a column a run."""

ENLARGED = 8
"""Pixels in a file, across and down, for a pixel of a picture."""


class Stoppable(TyperGroup):
    """Commands that Ctrl-C stops in words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped; the same command starts again", err=True)
            raise typer.Exit(STOPPED) from None


app = typer.Typer(
    cls=Stoppable,
    help="Keep backdoors out of federated learning: client updates elect each other.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The data sets on this machine.", no_args_is_help=True)
app.add_typer(data_app, name="data")
show_app = typer.Typer(help="What things look like.", no_args_is_help=True)
app.add_typer(show_app, name="show")

Out = Annotated[Path | None, typer.Option(help="Folder for the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Bench(StrEnum):
    """What can be timed."""

    elections = "elections"
    training = "training"


def show_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        from importlib import metadata

        typer.echo(f"snowball {metadata.version('snowball-fl')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def demo(
    out: Out = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew where there is a demo already.")] = False,
) -> None:
    """Run FedAvg against Snowball on the shipped sample, in minutes."""
    engine = choose(EngineName.processes)
    from snowball.report import write_html
    from snowball.sim.experiment import load

    folder = out or Path("runs") / f"demo-{seed}"
    for defense in ("fedavg", "snowball"):
        typer.echo(f"{defense}: a federation of 100 clients, 20 of them malicious")
        experiment = load("demo", [f"seed={seed}", f"defense.name={defense}"])
        advance(experiment, folder / defense, engine, True, overwrite)
    folders = show_table([folder / "fedavg", folder / "snowball"])
    write_html(folders, folder / "report.html")
    typer.echo(f"The report is {folder / 'report.html'}: open it in a browser.")


@app.command()
def run(
    source: Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A preset's name or a TOML file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a setting; can be given again.")
    ] = None,
    out: Out = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that train clients; all cores.")] = None,
    engine: Annotated[EngineName | None, typer.Option(help="How clients are trained.")] = None,
    chunk: Annotated[int | None, typer.Option(min=1, help="Clients that vmap trains at once; what fits.")] = None,
    device: Annotated[Device, typer.Option(help="What they are trained on.")] = Device.cpu,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that the folder holds.")] = False,
) -> None:
    """Run one experiment."""
    if resume and overwrite:
        raise SettingError("--resume goes on with a run and --overwrite replaces it: give one of them")
    chosen = choose(engine, device, workers, chunk)
    from snowball.sim.experiment import load, presets

    experiment = load(source, assignments or ())
    name = source.replace("/", "-") if source in presets() else Path(source).stem
    folder = out or Path("runs") / f"{name}-{experiment.seed}"
    advance(experiment, folder, chosen, resume, overwrite)
    show_table([folder])


class Where(StrEnum):
    """Where the runs of a sweep are played: in processes of this machine, or on a Ray cluster."""

    local = "local"
    ray = "ray"


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="GRID|FILE", help="A grid's name or a TOML file.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; all cores.")] = None,
    engine: Annotated[Where, typer.Option(help="Where runs are played.")] = Where.local,
    address: Annotated[str | None, typer.Option(help="The Ray cluster; one of its own.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Play what failed before, too.")] = False,
) -> None:
    """Run a grid of experiments; where it was stopped, it goes on."""
    play = choose_player(engine, jobs, address)
    from snowball.sim.grid import read_grid
    from snowball.sim.lock import alone
    from snowball.sim.sweep import prepare

    chosen = read_grid(source)
    with alone(out), terminable():
        plan = prepare(chosen, out, retry)
        skipped = f", {len(plan.skipped)} failed before (--retry plays them)" if plan.skipped else ""
        typer.echo(f"{chosen.title}: {len(plan.done)} runs are done{skipped}, {len(plan.waiting)} are to be played")
        try:
            failed = follow(plan, out, play)
        except KeyboardInterrupt:
            typer.echo(f"stopped; the same command goes on with what is in {out}", err=True)
            raise typer.Exit(STOPPED) from None
    lacking = len(plan.skipped) + failed
    typer.echo(f"{len(chosen.runs) - lacking} of {len(chosen.runs)} runs are in {out}")
    if lacking:
        typer.echo(f"{lacking} failed; {out / 'failed.json'} says why; --retry plays them again")
        raise typer.Exit(1)


def choose_player(engine: Where, jobs: int | None, address: str | None) -> "Player":
    """What plays the runs of a sweep."""
    if engine is Where.ray:
        from snowball.sim.on_ray import OnRay

        return OnRay(jobs, address)
    if address is not None:
        raise SettingError(f"--address {address} needs --engine ray, not {engine}")
    from snowball.sim.forkserver import warm

    warm()  # imports torch for the runs, while this process imports its own
    from snowball.sim.processes import cores
    from snowball.sim.side_by_side import SideBySide

    return SideBySide(jobs or cores())


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM mean what Ctrl-C means."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def follow(plan: "Plan", folder: Path, play: "Player") -> int:
    """Play what waits, with a line a run that ends and, on a terminal, a bar; how many failed."""
    from contextlib import closing

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from snowball.report.table import duration
    from snowball.sim.estimate import Estimate
    from snowball.sim.sweep import sweep

    estimate = Estimate(plan.waiting)
    columns = BarColumn(12), TextColumn("{task.description}")
    with (
        closing(sweep(plan, folder, play)) as heard,
        Progress(*columns, console=Console(), transient=True, disable=not sys.stdout.isatty()) as progress,
    ):
        task = progress.add_task("starting", total=estimate.rounds)
        for news in heard:
            estimate.hear(news)
            seconds = estimate.seconds(play.jobs)
            left = f"{estimate.ended} of {len(plan.waiting)}" + (f", {duration(seconds)} left" if seconds else "")
            if news.ended:
                progress.console.out(f"{left}: {ending(news, folder)}", highlight=False)
            progress.update(task, completed=estimate.rounds - sum(estimate.left.values()), description=left)
    return estimate.failed


def ending(news: "News", folder: Path) -> str:
    """How a run ended, in a line."""
    from snowball.records import RunFolder
    from snowball.report.table import percent, table

    if news.fault:
        return f"{news.run.name} failed: {news.fault}"
    row = table([RunFolder.open(folder / news.run.name)])[0]
    best = f"accuracy {percent(row.best_main_accuracy)}, backdoor {percent(row.best_backdoor_accuracy)}"
    return f"{news.run.name}: {best} in its best round"


@app.command()
def report(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs and sweeps.")],
    html: Annotated[Path | None, typer.Option(help="Write a page that opens offline.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show sweeps alone, beside the published numbers.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write sweeps as CSV, Markdown, LaTeX and pictures.")
    ] = None,
) -> None:
    """Show what runs and sweeps amount to."""
    from snowball.report import find_runs, read_sweeps, write_html

    sweeps, faults = read_sweeps(paths)
    noted = faults if sweeps or faults else None  # of runs alone, the first that cannot be used is an error
    folders = find_runs(paths, noted) if html or not paper else []
    if not sweeps and (paper or export or not folders):
        raise RunError(faults[0] if faults else f"there is no sweep in {', '.join(map(str, paths))}")
    if not paper:
        sweeps = [replace(sweep, published=None) for sweep in sweeps]
        show_runs(folders, noted)
    show_sweeps(sweeps)
    if export:
        faults += write_tables(sweeps, export)
    show_faults(faults)
    if html:
        write_html(folders, html, sweeps, faults)
        typer.echo(f"The report is {html}: open it in a browser.")


def show_sweeps(sweeps: "Iterable[Sweep]") -> None:
    """Print the tables of sweeps."""
    from rich.console import Console
    from rich.text import Text

    from snowball.report.exports import key, terminal_tables
    from snowball.report.grids import grid_of

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    for sweep in sweeps:
        table = grid_of(sweep)
        console.print(Text(f"\n{sweep.name}: {table.title}", style="bold"))
        for part in terminal_tables(table, console.width):
            console.print(part)
        console.print(Text(key(table)))


def write_tables(sweeps: "Sequence[Sweep]", folder: Path) -> list[str]:
    """Write the tables and the figures of sweeps to a folder; the sentences on figures that cannot be drawn."""
    from snowball.report.exports import write_exports

    files = write_exports(sweeps, folder)
    faults: list[str] = []
    if any(sweep.figure for sweep in sweeps):
        try:
            from snowball.report.pictures import write_pictures

            pictures, faults = write_pictures(sweeps, folder)
            files += pictures
        except MissingExtra as error:
            faults = [str(error)]
    typer.echo(f"{len(files)} files are in {folder}.")
    return faults


def show_faults(faults: Iterable[str]) -> None:
    """Say what could not be reported."""
    from snowball.report.audit import visible
    from snowball.report.sweeps import LONGEST

    for fault in dict.fromkeys(visible(fault, LONGEST) for fault in faults):
        typer.echo(f"snowball: {fault}", err=True)


@app.command()
def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A guard's audit.")],
    client: Annotated[str | None, typer.Option(metavar="ID", help="Show one client's history.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Write a page that opens offline.")] = None,
    as_json: Json = False,
) -> None:
    """Say who a guard left out, and why."""
    from snowball.audits import read_audit
    from snowball.report import Audit, write_audit

    found = Audit(read_audit(file))
    show = show_client if client is not None else show_audit
    show(found, client or "", as_json)
    if html:
        write_audit(found, html)
        typer.echo(f"The page is {html}: open it in a browser.", err=as_json)


def show_audit(audit: "Audit", _: str, as_json: bool) -> None:
    """Print what an audit amounts to."""
    from rich.console import Console

    from snowball.report.audit import HEADERS
    from snowball.report.audit_story import audit_headline, audit_story

    if as_json:
        typer.echo(json.dumps(audit.plain(), indent=2))
        return
    typer.echo("\n".join(filter(None, (audit_headline(audit), audit_story(audit)))))
    if audit.clients:
        console = Console(width=None if sys.stdout.isatty() else WIDE)
        console.print(grid([HEADERS, *(each.cells() for each in audit.clients)]))


def show_client(audit: "Audit", client: str, as_json: bool) -> None:
    """Print one client's history."""
    from dataclasses import asdict

    from snowball.report.audit_story import client_story, moment_line

    moments = audit.history(client)
    if as_json:
        typer.echo(json.dumps([asdict(moment) for moment in moments], indent=2))
        return
    typer.echo(client_story(next(each for each in audit.clients if each.client == client), audit, len(moments)))
    for moment in moments:
        typer.echo(moment_line(moment))


def described(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Name and summary of the entries of a table of classes or of data sets and models."""
    for name, entry in table.items():
        summary = getattr(entry, "summary", None) or (entry.__doc__ or "").strip().partition("\n")[0]
        yield {"name": name, "summary": summary}


def list_defenses() -> Iterable[dict[str, Any]]:
    """The defenses and their settings."""
    from snowball.defenses import DEFENSES

    return chosen_from(DEFENSES)


def list_attacks() -> Iterable[dict[str, Any]]:
    """The attacks, what they see, and their settings."""
    from snowball.attacks import ATTACKS

    return (entry | {"view": ATTACKS[entry["name"]].view} for entry in chosen_from(ATTACKS))


def chosen_from(table: Mapping[str, Callable[..., Any]]) -> Iterator[dict[str, Any]]:
    """The entries of a table whose entries have settings."""
    from snowball.defenses.settings import own_fields

    for entry in described(table):
        yield entry | {"settings": list(own_fields(table[entry["name"]]))}


def list_datasets() -> Iterable[dict[str, Any]]:
    """The data sets and where they are."""
    from snowball.data import DATASETS, where

    for entry in described(DATASETS):
        location, fault = None, None
        try:
            location = where(entry["name"])
        except (DataError, OSError) as error:
            fault = str(error)
        path = str(location.path) if location else None
        yield entry | {"path": path, "needs": DATASETS[entry["name"]].needs, "fault": fault}


def list_models() -> Iterable[dict[str, Any]]:
    """The models."""
    from snowball.models import MODELS

    return described(MODELS)


def list_triggers() -> Iterable[dict[str, Any]]:
    """The triggers."""
    from snowball.data.triggers import TRIGGERS

    return described(TRIGGERS)


def list_presets() -> Iterable[dict[str, Any]]:
    """The presets."""
    from snowball.sim.experiment import presets

    return ({"name": name, "summary": summary} for name, summary in presets().items())


def list_grids() -> Iterable[dict[str, Any]]:
    """The grids."""
    from snowball.sim.grid import grids

    return ({"name": name, "summary": summary} for name, summary in grids().items())


LISTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "defenses": list_defenses,
    "attacks": list_attacks,
    "datasets": list_datasets,
    "models": list_models,
    "triggers": list_triggers,
    "presets": list_presets,
    "grids": list_grids,
}

Kind = StrEnum("Kind", list(LISTS))  # type: ignore[misc]


@app.command("list")
def list_entries(kind: Annotated[Kind, typer.Argument()], as_json: Json = False) -> None:
    """List what can be used by name."""
    entries = list(LISTS[kind]())
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        view = f" (sees {entry['view']})" if "view" in entry else ""
        typer.echo(f"{entry['name']:{width}}  {entry['summary']}{view}")


@data_app.command("list")
def data_list() -> None:
    """Say where each data set is."""
    for entry in list_datasets():
        typer.echo(f"{entry['name']}: {entry['path'] or entry['fault'] or 'not here; it needs ' + entry['needs']}")


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A data set's name.")]) -> None:
    """Download a data set, unless it is here."""
    from snowball.data import fetch

    typer.echo(f"{name} is in {fetch(name).path}")


@show_app.command("trigger")
def show_trigger(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A trigger's name; `snowball list triggers`.")],
    data: Annotated[str | None, typer.Option(help="The data set whose sample carries it.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the pictures to a file, too.")] = None,
) -> None:
    """Show a sample with and without a trigger."""
    from rich.console import Console

    from snowball.data.preview import preview_of, sheet
    from snowball.records import write_bytes
    from snowball.terminal import show

    preview = preview_of(name, data)
    picture = sheet(preview, ENLARGED) if png else b""  # which refuses texts, before anything is shown
    show(preview, Console(width=None if sys.stdout.isatty() else WIDE))
    if png:
        write_bytes(png, picture)
        typer.echo(f"The picture is {png}.")


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

    folder = Path(__file__).parents[2] / "benchmarks"
    if not (folder / f"{name}.py").is_file():
        raise MissingExtra(f"benchmarks run from a checkout of the project, and there is no {folder / name}.py")
    sys.path.insert(0, str(folder))  # its modules import each other
    return importlib.import_module(name)


@app.command()
def doctor() -> None:
    """Check that this machine has what runs need."""
    from snowball.sim.doctor import examine

    findings = examine()
    for finding in findings:
        typer.echo(f"{'ok ' if finding.fine else 'BAD'} {finding.name}: {finding.detail}")
    if not all(finding.fine for finding in findings):
        raise typer.Exit(2)


def advance(
    experiment: "Experiment", folder: Path, engine: "Callable[[Federation], Engine]", resume: bool, overwrite: bool
) -> None:
    """Run an experiment to its end, and show how it goes."""
    from snowball.sim.run import is_finished, run

    if resume and not overwrite and is_finished(folder, experiment):
        typer.echo(f"{folder} has all its {experiment.rounds} rounds already")
        return
    rounds = run(experiment, folder, engine, resume and not overwrite, overwrite)
    try:
        show_progress(rounds, experiment.rounds)
    except KeyboardInterrupt:
        again = "the same command" if resume else "the same command and --resume"
        typer.echo(f"stopped; resume with {again}; the rounds so far are in {folder}", err=True)
        raise typer.Exit(STOPPED) from None


def show_progress(rounds: "Iterable[Record]", total: int) -> None:
    """Follow the rounds: with a bar on a terminal, with a line each elsewhere."""
    if not sys.stdout.isatty():
        for record in rounds:
            typer.echo(f"round {record['round']} of {total}: {line(record)}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(12), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(compact=True))
    with Progress(*columns, TextColumn("{task.description}")) as progress:
        task = progress.add_task("starting", total=total)
        for record in rounds:
            progress.update(task, completed=record["round"], description=line(record))


def line(record: "Record") -> str:
    """A round in a few words."""
    text = f"accuracy {record['main_accuracy']:.1%}"
    if record["backdoor_accuracy"] is not None:
        text += f", backdoor {record['backdoor_accuracy']:.1%}"
    return f"{text}, {sum(record['elected'])} of {len(record['elected'])} elected"


def show_table(paths: Iterable[Path]) -> "list[RunFolder]":
    """Print what the runs in these folders amount to."""
    from snowball.report import find_runs

    folders = find_runs(paths)
    show_runs(folders)
    return folders


def show_runs(folders: "Sequence[RunFolder]", faults: list[str] | None = None) -> None:
    """Print a table of runs; one that cannot be read is an error, or among the faults."""
    from rich.console import Console

    from snowball.report import HEADERS, table

    runs = [row.cells() for row in table(folders, faults)]
    console = Console(width=None if sys.stdout.isatty() else WIDE + max((len(cells[0]) for cells in runs), default=0))
    if console.width >= WIDE:
        console.print(grid([HEADERS, *runs]))
        return
    fitting = columns_in(console.width, HEADERS, runs) if runs else 1
    for start in range(0, len(runs), fitting):
        console.print(grid(list(zip(HEADERS, *runs[start : start + fitting], strict=True))))


def grid(lines: Sequence[Sequence[str]]) -> "Table":
    """Lines of cells as a table, the first as its head; nothing in them is markup."""
    from rich.markup import escape
    from rich.table import Table

    result = Table(*map(escape, lines[0]))
    for cells in lines[1:]:
        result.add_row(*map(escape, cells))
    return result


def columns_in(width: int, headers: Iterable[str], runs: Iterable[Iterable[str]]) -> int:
    """How many runs, at least one, fit side by side behind their headers."""
    edges = 3  # of a column: two spaces and a line
    widest = min(RUN_WIDTH, max(len(cell) for cells in runs for cell in cells))
    return max(1, (width - 1 - max(map(len, headers)) - edges) // (widest + edges))


def main() -> None:
    """The command `snowball`: what a user can fix is one line and exit code 2."""
    try:
        app()
    except SnowballError as error:
        fail(str(error))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        fail("the disk is full; what is on it is whole: make room, then go on with --resume")


def fail(sentence: str) -> NoReturn:
    """Say what the user can fix, and leave."""
    typer.echo(f"snowball: {sentence}", err=True)
    sys.exit(2)
