"""Checks that this machine has what runs need."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from snowball.data import DATASETS, load_dataset, locate_dataset
from snowball.data.io.locate import get_cache_folder
from snowball.errors import SnowballError
from snowball.sim.engines.processes import count_cores
from snowball.sim.run import collect_versions


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    passed: bool
    detail: str


def run_checks() -> list[Finding]:
    """Run all checks."""
    return [run_check(name, check) for name, check in CHECKS.items()]


def run_check(name: str, check: Callable[[], str]) -> Finding:
    """Run one check; its detail is what the check returns, or the error."""
    try:
        return Finding(name, True, check())
    except (SnowballError, OSError) as error:
        return Finding(name, False, str(error))


def describe_versions() -> str:
    """List the versions that results depend on."""
    return ", ".join(f"{name} {version}" for name, version in collect_versions().items())


def describe_processors() -> str:
    """Count cores, threads and GPUs."""
    gpu = "a GPU" if torch.cuda.is_available() else "no GPU"
    return f"{count_cores()} cores, {torch.get_num_threads()} torch threads, {gpu}"


def check_dataset(name: str) -> str:
    """Read a data set; one that is not on this machine passes."""
    location = locate_dataset(name)
    if location is None:
        return "not on this machine"
    dataset = load_dataset(name)
    return f"{len(dataset.train)} training and {len(dataset.test)} test samples in {location.path}"


def check_cache() -> str:
    """Check that downloads can be cached."""
    return check_writable(get_cache_folder())


def check_temporary_folder() -> str:
    """Check the folder through which processes share rows."""
    return check_writable(Path(tempfile.gettempdir()))


def check_writable(folder: Path) -> str:
    """Create a file in a folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return str(folder)


CHECKS: dict[str, Callable[[], str]] = {
    "versions": describe_versions,
    "processors": describe_processors,
    **{name: partial(check_dataset, name) for name in DATASETS},
    "cache": check_cache,
    "temporary files": check_temporary_folder,
}
