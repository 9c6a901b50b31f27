"""The commands `list` and `data`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snowball.cli.application import Json, app
from snowball.errors import DataError

if TYPE_CHECKING:
    from snowball.setting_docs import SettingInfo

data_app = typer.Typer(help="Find and download data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def describe_entries(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the name and summary of each entry of a registry."""
    for name, entry in table.items():
        summary = getattr(entry, "summary", None) or (entry.__doc__ or "").strip().partition("\n")[0]
        yield {"name": name, "summary": summary}


def list_defenses() -> Iterable[dict[str, Any]]:
    """List the defenses."""
    from snowball.defenses import DEFENSES

    return describe_entries(DEFENSES)


def list_attacks() -> Iterable[dict[str, Any]]:
    """List the attacks, and what they see."""
    from snowball.attacks import ATTACKS

    return (entry | {"view": ATTACKS[entry["name"]].knowledge} for entry in describe_entries(ATTACKS))


def list_datasets() -> Iterable[dict[str, Any]]:
    """List the data sets and their locations."""
    from snowball.data import DATASETS, locate_dataset

    for entry in describe_entries(DATASETS):
        location, fault = None, None
        try:
            location = locate_dataset(entry["name"])
        except (DataError, OSError) as error:
            fault = str(error)
        path = str(location.path) if location else None
        yield entry | {"path": path, "needs": DATASETS[entry["name"]].needs, "fault": fault}


def list_models() -> Iterable[dict[str, Any]]:
    """List the models."""
    from snowball.models import MODELS

    return describe_entries(MODELS)


def list_triggers() -> Iterable[dict[str, Any]]:
    """List the triggers."""
    from snowball.data.triggers import TRIGGERS

    return describe_entries(TRIGGERS)


def list_partitions() -> Iterable[dict[str, Any]]:
    """List the partitions."""
    from snowball.data.partition import PARTITIONS

    return describe_entries(PARTITIONS)


def list_presets() -> Iterable[dict[str, Any]]:
    """List the presets."""
    from snowball.records.presets import describe_presets

    return ({"name": name, "summary": summary} for name, summary in describe_presets().items())


def list_grids() -> Iterable[dict[str, Any]]:
    """List the grids."""
    from snowball.sweeps.grid import describe_grids

    return ({"name": name, "summary": summary} for name, summary in describe_grids().items())


LISTS: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
    "defenses": list_defenses,
    "attacks": list_attacks,
    "datasets": list_datasets,
    "models": list_models,
    "triggers": list_triggers,
    "partitions": list_partitions,
    "presets": list_presets,
    "grids": list_grids,
}


def describe_settings(kind: str, name: str) -> "Iterable[SettingInfo] | None":
    """Describe the settings of a listed entry; None for a kind without settings."""
    from snowball.setting_docs import describe_choice
    from snowball.sim.experiment import CHOICES, describe_experiment
    from snowball.sim.presets import load_experiment

    if kind == "presets":
        return describe_experiment(load_experiment(name))
    choosers = {"defenses": "defense.name", "attacks": "attack.name", "partitions": "data.partition"}
    if kind not in choosers:
        return None
    table = CHOICES[choosers[kind]].table
    return describe_choice(table[name], table)


Kind = StrEnum("Kind", list(LISTS))  # type: ignore[misc]


@app.command("list")
def list_entries(kind: Annotated[Kind, typer.Argument(help="What to list.")], as_json: Json = False) -> None:
    """List what settings can choose by name.

    JSON has the type, default and meaning of every setting, too.
    """
    entries = list(LISTS[kind]())
    if as_json:
        for entry in entries:
            if (settings := describe_settings(kind, entry["name"])) is not None:
                entry["settings"] = {setting.name: setting.plain() for setting in settings}
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        view = f" (sees {entry['view']})" if "view" in entry else ""
        typer.echo(f"{entry['name']:{width}}  {entry['summary']}{view}")


@data_app.command("list")
def show_data_locations() -> None:
    """Show where each data set is on this machine."""
    for entry in list_datasets():
        typer.echo(
            f"{entry['name']}: {entry['path'] or entry['fault'] or 'not on this machine; it needs ' + entry['needs']}"
        )


@data_app.command("fetch")
def download_dataset(name: Annotated[str, typer.Argument(help="A data set (see `snowball list datasets`).")]) -> None:
    """Download a data set if it is not on this machine."""
    from snowball.data import fetch_dataset

    typer.echo(f"{name} is in {fetch_dataset(name).path}")
