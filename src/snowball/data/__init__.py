"""Data sets, by name."""

from difflib import get_close_matches

from snowball.data.base import Dataset, DatasetInfo, Location, Split
from snowball.data.cifar10 import CIFAR10
from snowball.data.femnist import FEMNIST
from snowball.data.images import ImageDataset
from snowball.data.mnist import FASHION_MNIST, MNIST, MNIST_SAMPLE
from snowball.data.sent140 import SENT140, SENT140_USERS
from snowball.data.text import TextDataset, Vocabulary
from snowball.errors import SettingError

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "ImageDataset",
    "Location",
    "Split",
    "TextDataset",
    "Vocabulary",
    "fetch",
    "load",
    "where",
]

DATASETS: dict[str, DatasetInfo] = {
    info.name: info for info in (MNIST_SAMPLE, MNIST, FASHION_MNIST, CIFAR10, FEMNIST, SENT140, SENT140_USERS)
}


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
