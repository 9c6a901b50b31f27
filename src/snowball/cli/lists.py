"""What can be used by name, the data sets on this machine, and what triggers look like."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from snowball.cli.application import WIDE, Json, app
from snowball.errors import DataError

ENLARGED = 8
"""Pixels in a file, across and down, for a pixel of a picture."""

data_app = typer.Typer(help="The data sets on this machine.", no_args_is_help=True)
app.add_typer(data_app, name="data")
show_app = typer.Typer(help="What things look like.", no_args_is_help=True)
app.add_typer(show_app, name="show")


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

    return (entry | {"view": ATTACKS[entry["name"]].knowledge} for entry in chosen_from(ATTACKS))


def chosen_from(table: Mapping[str, Callable[..., Any]]) -> Iterator[dict[str, Any]]:
    """The entries of a table whose entries have settings."""
    from snowball.settings import own_fields

    for entry in described(table):
        yield entry | {"settings": list(own_fields(table[entry["name"]]))}


def list_datasets() -> Iterable[dict[str, Any]]:
    """The data sets and where they are."""
    from snowball.data import DATASETS, locate_dataset

    for entry in described(DATASETS):
        location, fault = None, None
        try:
            location = locate_dataset(entry["name"])
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
    from snowball.records.presets import describe_presets

    return ({"name": name, "summary": summary} for name, summary in describe_presets().items())


def list_grids() -> Iterable[dict[str, Any]]:
    """The grids."""
    from snowball.sweeps.grid import grids

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
    from snowball.data import fetch_dataset

    typer.echo(f"{name} is in {fetch_dataset(name).path}")


@show_app.command("trigger")
def show_trigger(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A trigger's name; `snowball list triggers`.")],
    data: Annotated[str | None, typer.Option(help="The data set whose sample carries it.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the pictures to a file, too.")] = None,
) -> None:
    """Show a sample with and without a trigger."""
    from rich.console import Console

    from snowball.cli.terminal import show
    from snowball.data.preview import load_preview, render_sheet
    from snowball.records.files import write_bytes

    preview = load_preview(name, data)
    picture = render_sheet(preview, ENLARGED) if png else b""  # which refuses texts, before anything is shown
    show(preview, Console(width=None if sys.stdout.isatty() else WIDE))
    if png:
        write_bytes(png, picture)
        typer.echo(f"The picture is {png}.")
