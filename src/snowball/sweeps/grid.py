"""Grids: many runs in one file, as products of axes. All runs are parsed before the first one starts."""

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
from snowball.settings import Settings, flatten_settings, refuse_huge_integers, require_known
from snowball.sim.experiment import CHOICES, Experiment
from snowball.sim.presets import Preset
from snowball.sweeps.grid_file import Block, GridFile, parse_section

MAX_RUNS = 10_000
"""More would take minutes to parse."""

GRIDS = resources.files("snowball").joinpath("grids")
FAMILIES = ("paper", "cpu")
"""The folders of shipped grids; a grid's name starts with its folder."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a grid.

    Attributes:
        name: its folder's name. It depends on the settings alone, so grids share the runs that they have in common.
        at: the settings that locate it in the grid, by path.
    """

    name: str
    experiment: Experiment
    at: Settings


@dataclass(frozen=True)
class Grid:
    """Runs that belong together, and how a report shows them."""

    name: str
    title: str
    file: GridFile
    axes: tuple[str, ...]
    runs: tuple[PlannedRun, ...]

    def order_runs(self) -> list[PlannedRun]:
        """Return the runs in execution order: those of the file's `first` defenses lead."""
        first = {name: rank for rank, name in enumerate(self.file.first)}
        return sorted(self.runs, key=lambda run: first.get(run.experiment.defense.name, len(first)))

    def manifest(self) -> Manifest:
        """Return what a report needs to know."""
        shown = self.file.model_dump(mode="json", include={"published", "table", "figure"})
        runs = tuple(ManifestRun(run.name, run.at) for run in self.runs)
        return Manifest(self.name, self.title, **shown, axes=self.axes, runs=runs)


def describe_grids() -> dict[str, str]:
    """Return the title of each shipped grid by its name."""
    found = {}
    for family in FAMILIES:
        files = sorted((file.name, file) for file in GRIDS.joinpath(family).iterdir() if file.name.endswith(".toml"))
        for name, file in files:
            found[f"{family}/{name.removesuffix('.toml')}"] = read_title(file.read_text(encoding="utf-8"))
    return found


def read_title(text: str) -> str:
    """Return a file's first line if it is a comment, else an empty string."""
    first = text.partition("\n")[0].strip()
    return first.lstrip("# ") if first.startswith("#") else ""


def read_grid(source: str | Path) -> Grid:
    """Read a shipped grid by its name, or a grid's file; raises a `SettingError` of one sentence."""
    name, shipped = str(source), describe_grids()
    file = GRIDS.joinpath(f"{name}.toml") if name in shipped else Path(source)
    if not file.is_file():
        raise SettingError(f"{name!r} is neither a grid nor a file{suggest_name(name, shipped)}")
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        settings = tomllib.loads(text)
        refuse_huge_integers(settings, str(source))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{source} is not a TOML file: {error}") from error
    grid_name = name if name in shipped else file.name.removesuffix(".toml")
    try:
        return parse_grid(grid_name, read_title(text) or grid_name, settings, Path(source).parent)
    except RecursionError as error:
        raise SettingError(f"{source} is nested too deeply") from error


def parse_grid(name: str, title: str, settings: Settings, folder: Path) -> Grid:
    """Parse the contents of a grid's file; preset files are looked for in `folder` first."""
    file = parse_section(GridFile, settings)
    blocks = file.blocks()
    if (total := sum(block.size() for block in blocks)) > MAX_RUNS:
        raise SettingError(f"{name} has {total:,} runs; the maximum is {MAX_RUNS:,}")
    runs = {name_run(experiment): experiment for block in blocks for experiment in expand_block(block, folder)}
    for defense in file.first:
        require_known("first", defense, {experiment.defense.name for experiment in runs.values()})
    flattened = {run: flatten_settings(experiment.dump_settings()) for run, experiment in runs.items()}
    axes = tuple(dict.fromkeys(path for block in blocks for path in block.axes))
    known = {path: None for settings in flattened.values() for path in settings}
    paths = dict.fromkeys((*COORDINATES, *axes, *file.paths(known)))
    paths |= dict.fromkeys(find_differing_settings(flattened.values(), paths))
    at = {run: {path: own.get(path) for path in paths} for run, own in flattened.items()}
    return Grid(name, title, file, axes, tuple(PlannedRun(run, runs[run], at[run]) for run in runs))


def find_differing_settings(runs: Iterable[Settings], paths: Collection[str]) -> Iterator[str]:
    """Find the settings that distinguish runs which agree on these paths, seed aside: such runs are not repetitions."""
    alike: dict[str, list[Settings]] = {}
    for run in runs:
        alike.setdefault(json.dumps([run.get(path) for path in paths if path != "seed"]), []).append(run)
    for group in alike.values():
        for path in dict.fromkeys(path for run in group for path in run if path != "seed"):
            if len({json.dumps(run.get(path)) for run in group}) > 1:
                yield path


def expand_block(block: Block, folder: Path) -> Iterator[Experiment]:
    """Yield the experiments of a block: the first axis varies slowest, the presets fastest."""
    sources = [Preset.read(locate_preset(preset, folder)) for preset in block.preset]
    for *values, preset in product(*block.axes.values(), sources):
        changes = {**block.set, **dict(zip(block.axes, values, strict=True))}
        choices_first = sorted(changes, key=lambda path: path not in CHOICES)
        yield preset.build_experiment([f"{path}={format_toml(changes[path])}" for path in choices_first])


def locate_preset(preset: str, folder: Path) -> str | Path:
    """Return a preset's name, or its file, which may be relative to a folder."""
    return folder / preset if preset not in describe_presets() and (folder / preset).is_file() else preset


def format_toml(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{format_toml(key)} = {format_toml(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(format_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def name_run(experiment: Experiment) -> str:
    """Name a run by its coordinates and a hash of its settings; see `hash_settings`."""
    settings = experiment.dump_settings()
    parts = (str(flatten_settings(settings)[path]) for path in COORDINATES)
    return re.sub(r"[^\w.-]", "_", "-".join((*parts, hash_settings(settings))))
