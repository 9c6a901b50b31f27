"""What this machine has of what runs need."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from snowball.data import DATASETS, load_dataset, locate_dataset
from snowball.data.io.locate import get_cache_folder
from snowball.errors import SnowballError
from snowball.sim.engines.processes import cores
from snowball.sim.run import versions


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    fine: bool
    detail: str


def examine() -> list[Finding]:
    """Look at everything."""
    return [checked(name, look) for name, look in CHECKS.items()]


def checked(name: str, look: Callable[[], str]) -> Finding:
    """What a look gives, or the sentence that it fails with."""
    try:
        return Finding(name, True, look())
    except (SnowballError, OSError) as error:
        return Finding(name, False, str(error))


def software() -> str:
    """Versions of what decides the numbers."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())


def processors() -> str:
    """Cores to train on, and what else there is."""
    gpu = "a GPU" if torch.cuda.is_available() else "no GPU"
    return f"{cores()} cores, {torch.get_num_threads()} torch threads, {gpu}"


def data(name: str) -> str:
    """Whether a data set can be read; one that is not here is no fault."""
    place = locate_dataset(name)
    if place is None:
        return "not here"
    dataset = load_dataset(name)
    return f"{len(dataset.train)} training and {len(dataset.test)} test samples in {place.path}"


def cache() -> str:
    """Whether downloads could be kept."""
    return writable(get_cache_folder())


def scratch() -> str:
    """Whether rows can be shared between processes."""
    return writable(Path(tempfile.gettempdir()))


def writable(folder: Path) -> str:
    """A folder in which a file can be made."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return str(folder)


CHECKS: dict[str, Callable[[], str]] = {
    "versions": software,
    "processors": processors,
    **{name: partial(data, name) for name in DATASETS},
    "cache": cache,
    "temporary files": scratch,
}
