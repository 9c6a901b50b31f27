"""A sweep's files next to its runs: one manifest per grid in sweeps/, and failed.json, one sentence per failed run."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from snowball.errors import RunError
from snowball.records.files import check_fields, make_folder, read_json, write_json

MANIFESTS = "sweeps"
"""The folder of manifests, next to the runs."""

FAILED = "failed.json"
"""The sentences of the runs that failed, by name."""

COORDINATES = ("data.name", "attack.name", "defense.name", "seed")
"""The settings that locate every run in its grid, and that its name starts with."""


@dataclass(frozen=True)
class ManifestRun:
    """A run that a sweep asks for.

    Attributes:
        folder: the name of its folder, next to the other runs.
        at: the settings that locate it in the grid, by path.
    """

    folder: str
    at: dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """A sweep's runs and how a report shows them; the fields are those of the file, in its order.

    Attributes:
        published: the key of the published numbers to compare with.
        table: rows, columns and values, as in the grid's file; the report checks them.
        figure: the figure to draw, as in the grid's file; the report checks it.
        axes: the paths of the settings that the grid varies.
        leaderboard: whether to rank the defenses; absent in the files of earlier versions.
    """

    name: str
    title: str
    published: str | None
    table: dict[str, Any] | None
    figure: dict[str, Any] | None
    axes: tuple[str, ...]
    runs: tuple[ManifestRun, ...]
    leaderboard: bool = False


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest into the folder of its runs."""
    path = locate_manifest(folder, manifest.name)
    make_folder(path.parent)
    write_json(path, asdict(manifest))


def locate_manifest(folder: Path, name: str) -> Path:
    """Return the path of the manifest of the grid called `name`."""
    return folder / MANIFESTS / f"{name.replace('/', '-')}.json"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest, and refuse one with missing or wrong fields."""
    fault = f"{path} is not a sweep's manifest"
    content = read_json(path)
    if isinstance(content, dict):
        content = {"leaderboard": False, **content}
    content = check_fields(content, FIELDS, fault)
    runs = tuple(ManifestRun(entry["folder"], entry["at"]) for entry in content["runs"])
    if len(folders := {run.folder for run in runs}) != len(runs):
        raise RunError(f"{fault}: it names {len(runs)} runs, {len(folders)} distinct")
    fields = {name: content[name] for name in FIELDS}
    return Manifest(**{**fields, "axes": tuple(content["axes"]), "runs": runs})


def read_failed(folder: Path) -> dict[str, str]:
    """Read the sentences of the runs that failed, by name."""
    path = folder / FAILED
    failed = read_json(path) if path.exists() else {}
    if not isinstance(failed, dict) or not all(isinstance(fault, str) for fault in failed.values()):
        raise RunError(f"{path} must hold one sentence per failed run: move it away")
    return failed


def write_failed(folder: Path, failed: Mapping[str, str]) -> None:
    """Write the sentences of the runs that failed, by name."""
    write_json(folder / FAILED, failed)


def are_texts(value: Any) -> bool:
    """Whether it is a list of texts, none of them empty."""
    return isinstance(value, list) and all(map(_is_text, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_runs(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(map(_is_run, value))


def _is_run(entry: Any) -> bool:
    at = entry.get("at") if isinstance(entry, dict) else None
    if not isinstance(at, dict) or not _is_folder_name(entry.get("folder")):
        return False
    *names, seed = COORDINATES
    return all(_is_text(at.get(path)) for path in names) and isinstance(at.get(seed), int)


def _is_folder_name(value: Any) -> bool:
    """Whether it names a folder directly in this one."""
    if not isinstance(value, str) or not value.isprintable() or value == "..":
        return False
    return 0 < len(value.encode()) < 256 and Path(value).name == value


FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": _is_text,
    "title": lambda value: isinstance(value, str),
    "published": lambda value: value is None or isinstance(value, str),
    "table": lambda value: value is None or isinstance(value, dict),
    "figure": lambda value: value is None or isinstance(value, dict),
    "axes": are_texts,
    "runs": _are_runs,
    "leaderboard": lambda value: isinstance(value, bool),
}
"""The fields of a manifest, and the check of each."""
