"""Checks that this machine has what runs need, and what to do where it does not."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch

from snowball.data import DATASETS, load_dataset, locate_dataset
from snowball.data.io.locate import get_cache_folder
from snowball.errors import SnowballError
from snowball.sim.engines.processes import count_cores
from snowball.sim.run import collect_versions

MIN_FREE_BYTES = 10**9
"""Free space below which a folder is not fit for runs: a long run of a large model writes hundreds of megabytes."""

THREADS = "OMP_NUM_THREADS"

EXTRA = re.compile(r"[^;]+;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
"""Matches a requirement of an extra in the package's metadata."""

PURPOSES = {
    "testing": "check_defense and check_attack",
    "figures": "the images of report --export",
    "notebook": "tables and pictures in notebooks",
    "flower": "guarding Flower, and run --engine flower",
    "nvflare": "guarding NVFlare",
    "ray": "sweep --engine ray",
    "tensorboard": "run --track tensorboard",
    "mlflow": "run --track mlflow",
    "wandb": "run --track wandb",
    "prometheus": "a guard's metrics for Prometheus",
    "signing": "signed audits",
}
"""What each extra is for."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        state: "no" if something optional is not there; its detail says what to do.
    """

    name: str
    state: Literal["ok", "no", "BAD"]
    detail: str


class NotThere(Exception):  # noqa: N818
    """Something optional is not on this machine; the message says how to get it."""


def run_checks() -> list[Finding]:
    """Run all checks."""
    return [run_check(name, check) for name, check in list_checks().items()]


def list_checks() -> dict[str, Callable[[], str]]:
    """List all checks by name."""
    extras = {f"extra {extra}": partial(check_extra, extra, *needed) for extra, needed in list_extras().items()}
    return {
        "versions": describe_versions,
        "processors": describe_processors,
        "threads": describe_threads,
        **extras,
        **{name: partial(check_dataset, name) for name in DATASETS},
        "runs": partial(check_folder, Path("runs"), "give --out, or change to another folder"),
        "cache": partial(check_folder, get_cache_folder(), "set XDG_CACHE_HOME to another folder"),
        "temporary files": partial(check_folder, Path(tempfile.gettempdir()), "set TMPDIR to another folder"),
    }


def run_check(name: str, check: Callable[[], str]) -> Finding:
    """Run one check; its detail is what the check returns, or the error."""
    try:
        return Finding(name, "ok", check())
    except NotThere as advice:
        return Finding(name, "no", str(advice))
    except (SnowballError, OSError) as error:
        return Finding(name, "BAD", str(error))


def describe_versions() -> str:
    """List the versions that results depend on."""
    return ", ".join(f"{name} {version}" for name, version in collect_versions().items())


def describe_processors() -> str:
    """Count cores and GPUs."""
    gpu = "a GPU for --device cuda" if torch.cuda.is_available() else "no GPU, so --device cpu"
    return f"{count_cores()} cores, which run and sweep use unless --workers or --jobs says otherwise; {gpu}"


def describe_threads() -> str:
    """Say how many threads a process has, and refuse a setting that slows runs down."""
    asked, cores = os.environ.get(THREADS), count_cores()
    if not asked:
        return f"{THREADS} is not set, torch has {torch.get_num_threads()}; each worker has 1, so nothing is to do"
    if not asked.isdecimal() or not 1 <= int(asked[:9]) <= cores:
        raise SnowballError(f"{THREADS} is {asked[:20]!r}, and there are {cores} cores: set it to 1, or unset it")
    return f"{THREADS} is {asked}, torch has {torch.get_num_threads()}; each worker has 1, so nothing is to do"


def list_extras() -> dict[str, tuple[str, ...]]:
    """List the packages that each extra needs, as the installed package declares them."""
    found: dict[str, tuple[str, ...]] = {}
    for requirement in metadata.requires("snowball-fl") or ():
        if (match := EXTRA.match(requirement)) and match["extra"] != "dev":
            found[match["extra"]] = (*found.get(match["extra"], ()), requirement.partition(";")[0].strip())
    return found


def check_extra(extra: str, *needed: str) -> str:
    """Check that the packages of an extra are installed."""
    purpose = f" for {PURPOSES[extra]}" if extra in PURPOSES else ""
    versions = {requirement: find_version(requirement) for requirement in needed}
    if missing := [requirement for requirement, version in versions.items() if version is None]:
        wanted = " ".join(f"'{requirement}'" for requirement in missing)
        raise NotThere(f"not installed; to get it{purpose}: pip install {wanted}")
    return ", ".join(f"{name_package(requirement)} {version}" for requirement, version in versions.items()) + purpose


def name_package(requirement: str) -> str:
    """Return the name of the package that a requirement asks for."""
    return re.split(r"[^\w.-]", requirement)[0]


def find_version(requirement: str) -> str | None:
    """Return the version of the package that a requirement asks for; None if it is missing or too old."""
    try:
        version = metadata.version(name_package(requirement))
    except metadata.PackageNotFoundError:
        return None
    least, found = (parse_version(text) for text in (requirement.partition(">=")[2], version))
    return version if found >= least else None


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, for comparison."""
    return tuple(int(part) for part in re.match(r"[\d.]*", text)[0].split(".") if part)  # type: ignore[index]


def check_dataset(name: str) -> str:
    """Read a data set."""
    location = locate_dataset(name)
    if location is None:
        files = f"put {DATASETS[name].needs} into a folder and set SNOWBALL_DATA to it"
        raise NotThere(f"not on this machine; try `snowball data fetch {name}`, or {files}")
    dataset = load_dataset(name)
    return f"{len(dataset.train)} training and {len(dataset.test)} test samples in {location.path}"


def check_folder(folder: Path, advice: str) -> str:
    """Check that files can be created in a folder, or where it will be made, and that there is room for them."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        if existing != folder.absolute():
            tempfile.TemporaryDirectory(dir=existing).cleanup()
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        raise SnowballError(f"nothing can be written into {existing}: {error.strerror}; {advice}") from error
    if free < MIN_FREE_BYTES:
        raise SnowballError(f"{folder.absolute()} has {free / 1e9:.1f} GB free, under 1 GB; make room or {advice}")
    return f"{folder.absolute()}, {free / 1e9:.0f} GB free"
