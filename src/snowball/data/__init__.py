"""Data sets, by name."""

from dataclasses import replace
from typing import Any

from snowball.data.base import Dataset, DatasetInfo, Location, Split
from snowball.data.images import ImageDataset
from snowball.data.own import OwnData
from snowball.data.sets.cifar10 import CIFAR10
from snowball.data.sets.femnist import FEMNIST, LETTERS_ALONE
from snowball.data.sets.mnist import FASHION_MNIST, MNIST, MNIST_SAMPLE
from snowball.data.sets.sent140 import SENT140, SENT140_USERS, Sent140Loader
from snowball.data.text import DEFAULT_TOKENISER, TOKENISERS, TextDataset, Vocabulary
from snowball.errors import DataError, SettingError
from snowball.registry import OWN_NAME, Registry, make_instance, suggest_or_list

__all__ = [
    "DATASETS",
    "DEFAULT_TOKENISER",
    "TOKENISERS",
    "Dataset",
    "DatasetInfo",
    "ImageDataset",
    "Location",
    "OwnData",
    "Split",
    "TextDataset",
    "Vocabulary",
    "fetch_dataset",
    "load_dataset",
    "locate_dataset",
]

DATASETS: Registry[DatasetInfo] = Registry(
    "snowball.datasets",
    {
        info.name: info
        for info in (MNIST_SAMPLE, MNIST, FASHION_MNIST, CIFAR10, FEMNIST, LETTERS_ALONE, SENT140, SENT140_USERS)
    },
    required_attributes=("name", "summary", "needs", "locate", "fetch", "load"),
    adapt=make_instance,
)


def load_dataset(name: str, tokeniser: str = DEFAULT_TOKENISER) -> Dataset:
    """Load a data set from the package, $SNOWBALL_DATA, the user's cache or a download, whichever has it first.

    `tokeniser` is a name of `TOKENISERS` and splits texts into words.
    """
    info = _find_info(name)
    if isinstance(info, Sent140Loader):
        return replace(info, tokeniser=tokeniser).load()
    if tokeniser != DEFAULT_TOKENISER:
        raise SettingError(f"data.tokeniser = {tokeniser!r} does not fit: {name} has no texts; leave it out")
    loaded: Any = info.load()
    if not isinstance(loaded, Dataset):
        raise DataError(f"load() of {name} returned {type(loaded).__name__}, a snowball.data.Dataset is needed")
    return loaded


def locate_dataset(name: str) -> Location | None:
    """Locate a data set on this machine, without the network; None if it is not here."""
    return _find_info(name).locate()


def fetch_dataset(name: str) -> Location:
    """Locate a data set on this machine, and download it if necessary."""
    return _find_info(name).fetch()


def _find_info(name: str) -> DatasetInfo:
    if name == OWN_NAME:
        raise SettingError("data.name = 'own' is data from Python: give it as snowball.run(..., data=...)")
    if name not in DATASETS:
        raise SettingError(f"{name!r} is not a data set{suggest_or_list(name, DATASETS)}")
    return DATASETS[name]
