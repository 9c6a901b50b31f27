"""Data sets, by name."""

from difflib import get_close_matches

from snowball.data.base import Dataset, DatasetInfo, Location, Split
from snowball.data.mnist import FASHION_MNIST, MNIST, MNIST_SAMPLE
from snowball.errors import SettingError

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "Location", "Split", "fetch", "load", "where"]

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in (MNIST_SAMPLE, MNIST, FASHION_MNIST)}


def load(name: str) -> Dataset:
    """A data set in memory: from the package, $SNOWBALL_DATA, the user's cache or its public home, whichever has it."""
    return _info(name).load()


def where(name: str) -> Location | None:
    """Where a data set is on this machine, if it is; reads no network."""
    return _info(name).locate()


def fetch(name: str) -> Location:
    """Where a data set is on this machine, after a download if need be."""
    return _info(name).fetch()


def _info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DATASETS)}"
        raise SettingError(f"{name!r} is not a data set; {hint}")
    return DATASETS[name]
