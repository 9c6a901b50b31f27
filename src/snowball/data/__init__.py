"""Data sets, by name."""

from dataclasses import replace

from snowball.data.base import Dataset, DatasetInfo, Location, Split
from snowball.data.images import ImageDataset
from snowball.data.sets.cifar10 import CIFAR10
from snowball.data.sets.femnist import FEMNIST
from snowball.data.sets.mnist import FASHION_MNIST, MNIST, MNIST_SAMPLE
from snowball.data.sets.sent140 import SENT140, SENT140_USERS, Sent140
from snowball.data.text import DEFAULT_TOKENISER, TOKENISERS, TextDataset, Vocabulary
from snowball.errors import SettingError
from snowball.registry import Registry, make_instance, suggest_or_list

__all__ = [
    "DATASETS",
    "DEFAULT_TOKENISER",
    "TOKENISERS",
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

DATASETS: Registry[DatasetInfo] = Registry(
    "snowball.datasets",
    {info.name: info for info in (MNIST_SAMPLE, MNIST, FASHION_MNIST, CIFAR10, FEMNIST, SENT140, SENT140_USERS)},
    required_attributes=("name", "summary", "needs", "locate", "fetch", "load"),
    adapt=make_instance,
)


def load(name: str, tokeniser: str = DEFAULT_TOKENISER) -> Dataset:
    """A data set in memory: from the package, $SNOWBALL_DATA, the user's cache or its public home, whichever has it.

    Texts are cut into words by a tokeniser, which is a name of `TOKENISERS`.
    """
    info = _info(name)
    if isinstance(info, Sent140):
        return replace(info, tokeniser=tokeniser).load()
    if tokeniser != DEFAULT_TOKENISER:
        raise SettingError(f"data.tokeniser = {tokeniser!r} does not fit: {name} has no texts; leave it out")
    return info.load()


def where(name: str) -> Location | None:
    """Where a data set is on this machine, if it is; reads no network."""
    return _info(name).locate()


def fetch(name: str) -> Location:
    """Where a data set is on this machine, after a download if need be."""
    return _info(name).fetch()


def _info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise SettingError(f"{name!r} is not a data set{suggest_or_list(name, DATASETS)}")
    return DATASETS[name]
