"""Data sets, by name."""

from snowball.data.base import Dataset, DatasetInfo, Location, Split
from snowball.data.cifar10 import CIFAR10
from snowball.data.femnist import FEMNIST
from snowball.data.images import ImageDataset
from snowball.data.mnist import FASHION_MNIST, MNIST, MNIST_SAMPLE
from snowball.data.sent140 import SENT140, SENT140_USERS
from snowball.data.text import TextDataset, Vocabulary
from snowball.errors import SettingError
from snowball.tables import hint

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
        raise SettingError(f"{name!r} is not a data set{hint(name, DATASETS)}")
    return DATASETS[name]
