"""Grids: many runs in one file, as products of axes. All runs are parsed before the first one starts."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from snowball.settings import Settings, flatten_settings, is_file, parse_toml, read_toml_text, require_known
from snowball.sim.experiment import Experiment
from snowball.sim.presets import Preset, Source, explain_recursion, parse_overrides
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
        shown = self.file.model_dump(mode="json", include={"published", "table", "figure", "leaderboard"})
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
    if not is_file(file):
        raise SettingError(f"{name!r} is neither a grid nor a file{suggest_name(name, shipped)}")
    text = read_toml_text(file, source)
    settings = parse_toml(text, source)
    grid_name = name if name in shipped else file.name.removesuffix(".toml")
    try:
        return parse_grid(grid_name, read_title(text) or grid_name, settings, Path(source).parent)
    except RecursionError as error:
        raise SettingError(f"{source} is nested too deeply") from error


def parse_grid(name: str, title: str, settings: Settings, folder: Path) -> Grid:
    """Parse the contents of a grid's file; preset files are looked for in `folder` first."""
    file = parse_section(GridFile, settings)
    blocks = file.blocks()
    refuse_many(name, sum(block.size() for block in blocks))
    axes = dict.fromkeys(path for block in blocks for path in block.axes)
    experiments = [experiment for block in blocks for experiment in expand_block(block, folder, file.peers)]
    return assemble_grid(name, title, file, tuple(axes), experiments)


def build_grid(source: Source, overrides: Iterable[Mapping[str, Any]], seeds: Iterable[int] | None = None) -> Grid:
    """Build the grid of one run per override of the same experiment and, if there are seeds, per seed."""
    seeded = add_seeds(list(overrides), seeds)
    with explain_recursion(source):
        preset = Preset.read(source)
        name = name_source(source)
        refuse_many(name, len(seeded))
        changes = list(map(parse_overrides, seeded))
        experiments = list(map(preset.build_experiment, changes))
    axes = tuple(dict.fromkeys(path for each in changes for path, _ in each))
    file = GridFile(grid=[{"preset": name, "set": dict(each)} for each in changes])
    return assemble_grid(name, f"Runs of {name}", file, axes, experiments)


def add_seeds(overrides: Sequence[Mapping[str, Any]], seeds: Iterable[int] | None) -> Sequence[Mapping[str, Any]]:
    """Return every override with every seed, or the overrides as they are if no seeds are given."""
    check_overrides(overrides, seeds is not None)
    if seeds is None:
        return overrides
    if not isinstance(seeds, Iterable) or isinstance(seeds, str) or not (chosen := list(seeds)):
        raise SettingError(f"seeds must be a list of whole numbers, such as [1, 2, 3], got {seeds!r}")
    return [{**each, "seed": seed} for each in overrides for seed in chosen]


def check_overrides(overrides: Sequence[Any], seeded: bool) -> None:
    """Refuse an empty list, entries that are not mappings, and a seed in an override if seeds are given too."""
    if not overrides:
        raise SettingError("there is nothing to run: give at least one override; {} is the preset as it is")
    for each in overrides:
        if not isinstance(each, Mapping):
            raise SettingError(f"each override must be a mapping, such as {{'defense.name': 'krum'}}, got {each!r}")
        if seeded and "seed" in each:
            raise SettingError(f"an override sets seed = {each['seed']!r}, and seeds are given too: leave one out")


def assemble_grid(
    name: str, title: str, file: GridFile, axes: tuple[str, ...], experiments: Iterable[Experiment]
) -> Grid:
    """Assemble a grid of these experiments, each once, and find the settings that locate them."""
    runs = {name_run(experiment): experiment for experiment in experiments}
    for defense in file.first:
        require_known("first", defense, {experiment.defense.name for experiment in runs.values()})
    flattened = {run: flatten_settings(experiment.dump_settings()) for run, experiment in runs.items()}
    known = {path: None for settings in flattened.values() for path in settings}
    paths = dict.fromkeys((*COORDINATES, *axes, *file.paths(known)))
    paths |= dict.fromkeys(find_differing_settings(flattened.values(), paths))
    at = {run: {path: own.get(path) for path in paths} for run, own in flattened.items()}
    return Grid(name, title, file, axes, tuple(PlannedRun(run, runs[run], at[run]) for run in runs))


def refuse_many(name: str, runs: int) -> None:
    """Refuse a grid with too many runs."""
    if runs > MAX_RUNS:
        raise SettingError(f"{name} has {runs:,} runs; the maximum is {MAX_RUNS:,}")


def name_source(source: Source) -> str:
    """Return a preset's name, the name of a file without its ending, or `experiment`."""
    if isinstance(source, Experiment):
        return "experiment"
    return str(source) if str(source) in describe_presets() else Path(source).stem


def find_differing_settings(runs: Iterable[Settings], paths: Collection[str]) -> Iterator[str]:
    """Find the settings that distinguish runs which agree on these paths, seed aside: such runs are not repetitions."""
    alike: dict[str, list[Settings]] = {}
    for run in runs:
        alike.setdefault(json.dumps([run.get(path) for path in paths if path != "seed"]), []).append(run)
    for group in alike.values():
        for path in dict.fromkeys(path for run in group for path in run if path != "seed"):
            if len({json.dumps(run.get(path)) for run in group}) > 1:
                yield path


def expand_block(block: Block, folder: Path, peers: Settings | None = None) -> Iterator[Experiment]:
    """Yield the experiments of a block: the first axis varies slowest, the presets fastest.

    `peers` replace the settings of defenses that the presets have.
    """
    sources = [Preset.read(locate_preset(preset, folder)) for preset in block.preset]
    if peers is not None:
        sources = [source.replace_peers(peers) for source in sources]
    for *values, preset in product(*block.axes.values(), sources):
        changes = {**block.set, **dict(zip(block.axes, values, strict=True))}
        yield preset.build_experiment(parse_overrides(changes))


def locate_preset(preset: str, folder: Path) -> str | Path:
    """Return a preset's name, or its file, which may be relative to a folder."""
    return folder / preset if preset not in describe_presets() and is_file(folder / preset) else preset


def name_run(experiment: Experiment) -> str:
    """Name a run by its coordinates, a hash of own data and an own model, if given, and one of its settings."""
    settings = experiment.dump_settings()
    parts = (str(flatten_settings(settings)[path]) for path in COORDINATES)
    own = experiment.describe_own()
    hashes = (hash_settings(own), hash_settings(settings)) if own else (hash_settings(settings),)
    return re.sub(r"[^\w.-]", "_", "-".join((*parts, *hashes)))
