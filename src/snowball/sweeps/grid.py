"""Grids: many runs in one file, as products of axes; all of them are parsed before the first one starts."""

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from snowball.errors import SettingError
from snowball.records.presets import describe_presets
from snowball.records.run_names import hash_settings
from snowball.records.sweep import COORDINATES, Manifest, ManifestRun
from snowball.registry import suggest_name
from snowball.settings import Settings, flat, require
from snowball.sim.experiment import CHOICES, Experiment
from snowball.sim.presets import Preset
from snowball.sweeps.grid_file import Block, GridFile, parse

MOST = 10_000
"""Runs that a grid may have: to parse so many takes minutes."""

GRIDS = resources.files("snowball").joinpath("grids")
FAMILIES = ("paper", "cpu")
"""The folders that grids are in: their names start with them."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a grid.

    Attributes:
        name: of its folder; it follows from the settings, so that grids share the runs that they have in common.
        at: its place in the grid: settings by their paths.
    """

    name: str
    experiment: Experiment
    at: Settings


@dataclass(frozen=True)
class Grid:
    """Runs that belong together, and how they are shown."""

    name: str
    title: str
    file: GridFile
    axes: tuple[str, ...]
    runs: tuple[PlannedRun, ...]

    def in_turn(self) -> list[PlannedRun]:
        """The runs in the order that they are played in."""
        first = {name: turn for turn, name in enumerate(self.file.first)}
        return sorted(self.runs, key=lambda run: first.get(run.experiment.defense.name, len(first)))

    def manifest(self) -> Manifest:
        """What a report needs to know."""
        shown = self.file.model_dump(mode="json", include={"published", "table", "figure"})
        runs = tuple(ManifestRun(run.name, run.at) for run in self.runs)
        return Manifest(self.name, self.title, **shown, axes=self.axes, runs=runs)


def grids() -> dict[str, str]:
    """What each shipped grid is: the first line of its file."""
    found = {}
    for family in FAMILIES:
        files = sorted((file.name, file) for file in GRIDS.joinpath(family).iterdir() if file.name.endswith(".toml"))
        for name, file in files:
            found[f"{family}/{name.removesuffix('.toml')}"] = title_of(file.read_text(encoding="utf-8"))
    return found


def title_of(text: str) -> str:
    """A file's first line, where that is a comment."""
    first = text.partition("\n")[0].strip()
    return first.lstrip("# ") if first.startswith("#") else ""


def read_grid(source: str | Path) -> Grid:
    """The grid of this name or in this file, with every run parsed; a fault is one sentence."""
    name, shipped = str(source), grids()
    file = GRIDS.joinpath(f"{name}.toml") if name in shipped else Path(source)
    if not file.is_file():
        raise SettingError(f"{name!r} is neither a grid nor a file{suggest_name(name, shipped)}")
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors start a file with a mark
        settings = tomllib.loads(text)
        json.dumps(settings, default=str)  # which refuses a number of thousands of digits
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{source} is not a TOML file: {error}") from error
    called = name if name in shipped else file.name.removesuffix(".toml")
    try:
        return grid_of(called, title_of(text) or called, settings, Path(source).parent)
    except RecursionError as error:
        raise SettingError(f"{source} is nested too deeply") from error


def grid_of(name: str, title: str, settings: Settings, folder: Path) -> Grid:
    """The grid of what a file holds; presets that are files are looked for beside it."""
    file = parse(GridFile, settings)
    blocks = file.blocks()
    if (total := sum(block.size() for block in blocks)) > MOST:
        raise SettingError(f"{name} has {total:,} runs, more than {MOST:,}")
    runs = {run_name(experiment): experiment for block in blocks for experiment in expand(block, folder)}
    for defense in file.first:
        require("first", defense, {experiment.defense.name for experiment in runs.values()})
    places = {run: flat(experiment.settings()) for run, experiment in runs.items()}
    axes = tuple(dict.fromkeys(path for block in blocks for path in block.axes))
    known = {path: None for place in places.values() for path in place}
    paths = dict.fromkeys((*COORDINATES, *axes, *file.paths(known)))
    paths |= dict.fromkeys(differing(places.values(), paths))
    at = {run: {path: place.get(path) for path in paths} for run, place in places.items()}
    return Grid(name, title, file, axes, tuple(PlannedRun(run, runs[run], at[run]) for run in runs))


def differing(places: Iterable[Settings], paths: Collection[str]) -> Iterator[str]:
    """The settings in which runs differ that are alike along these paths, but for the seed: they are no repetitions."""
    alike: dict[str, list[Settings]] = {}
    for place in places:
        alike.setdefault(json.dumps([place.get(path) for path in paths if path != "seed"]), []).append(place)
    for group in alike.values():
        for path in dict.fromkeys(path for place in group for path in place if path != "seed"):
            if len({json.dumps(place.get(path)) for place in group}) > 1:
                yield path


def expand(block: Block, folder: Path) -> Iterator[Experiment]:
    """The runs of a block: the first axis varies slowest, the presets fastest."""
    sources = [Preset.open(located(preset, folder)) for preset in block.preset]
    for *values, preset in product(*block.axes.values(), sources):
        changes = {**block.set, **dict(zip(block.axes, values, strict=True))}
        choices_first = sorted(changes, key=lambda path: path not in CHOICES)
        yield preset.experiment([f"{path}={as_toml(changes[path])}" for path in choices_first])


def located(preset: str, folder: Path) -> str | Path:
    """A preset's name, or its file, which may be given as seen from a folder."""
    return folder / preset if preset not in describe_presets() and (folder / preset).is_file() else preset


def as_toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{as_toml(key)} = {as_toml(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def run_name(experiment: Experiment) -> str:
    """A run's name: what it is about, and a hash of all of its settings but those added since that change nothing."""
    settings = experiment.settings()
    parts = (str(flat(settings)[path]) for path in COORDINATES)
    return re.sub(r"[^\w.-]", "_", "-".join((*parts, hash_settings(settings))))
