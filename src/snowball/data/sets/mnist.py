"""MNIST, its shipped sample, and Fashion-MNIST, which has the same format.

LeCun, Cortes, Burges: The MNIST database of handwritten digits. Xiao, Rasul, Vollgraf: Fashion-MNIST, 2017.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from snowball.data.base import Location, Split
from snowball.data.images import ARRAY_NAMES, Array, ImageDataset, check_arrays
from snowball.data.io.download import download_file
from snowball.data.io.formats import read_idx, read_npz
from snowball.data.io.locate import describe_provenance, get_cache_folder, locate_copy, make_missing_error
from snowball.errors import DataError

IDX_FILES = (  # the same arrays, in the same order
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CLASSES, SHAPE = 10, (28, 28)


@dataclass(frozen=True)
class MNISTLoader:
    """Finds and loads a data set in MNIST's format.

    Attributes:
        mean: subtracted from pixels scaled to 0..1.
        std: divisor after that.
        home: base address of the compressed idx files.
        sha256: checksums of those files, in the order of `IDX_FILES`.
        contents: sha256 of the complete set, see `describe_provenance`.
        test_labels: sha256 of the test labels, which tell apart sets with the same file names.
        npz_sha256: sha256 of a good archive, for the error message about a bad one.
        shipped: the archive in this package, if the set is not searched for elsewhere.
    """

    name: str
    summary: str
    mean: float
    std: float
    home: str = ""
    sha256: tuple[str, ...] = ()
    contents: str = ""
    test_labels: str = ""
    npz_sha256: str = ""
    shipped: Path | None = None

    @property
    def needs(self) -> str:
        """The files to fetch and their source."""
        return "" if self.shipped else f"{', '.join(f'{file}.gz' for file in IDX_FILES)} from {self.home}"

    def locate(self) -> Location | None:
        """Locate the shipped archive, or a copy in $SNOWBALL_DATA or the user's cache."""
        if self.shipped:
            return Location("sample", self.shipped)
        return locate_copy(self._find)

    def _find(self, folder: Path) -> Path | None:
        archive, own = folder / f"{self.name.replace('-', '_')}.npz", folder / self.name
        if archive.is_file():
            return archive
        if find_idx_files(own):
            return own
        return folder if self._has_own_files(folder) else None

    def _has_own_files(self, folder: Path) -> bool:
        """Return whether a folder has the idx files of this set, and not of another set with the same file names."""
        paths = find_idx_files(folder)
        return bool(paths) and hashlib.sha256(read_idx(paths[-1], 1).tobytes()).hexdigest() == self.test_labels

    def fetch(self) -> Location:
        """Locate a copy, and download it if necessary."""
        return self.locate() or self._download()

    def _download(self) -> Location:
        folder = get_cache_folder() / self.name
        try:
            for file, checksum in zip(IDX_FILES, self.sha256, strict=True):
                if not (folder / f"{file}.gz").is_file():
                    download_file(f"{self.home}{file}.gz", folder / f"{file}.gz", checksum)
        except DataError as error:
            raise make_missing_error(self.name, str(error), self.needs) from error
        return Location("download", folder)

    def load(self) -> ImageDataset:
        """Load the data set from where it is found first."""
        location = self.fetch()
        arrays = read_arrays(location.path, self.npz_sha256)
        train, test = make_split(*arrays[:2]), make_split(*arrays[2:])
        record = describe_provenance(location, train, test, complete=self.contents)
        return ImageDataset(self.name, CLASSES, train, test, record, mean=(self.mean,), std=(self.std,))


def find_idx_files(folder: Path) -> list[Path]:
    """Find the four idx files of a folder, compressed or not; empty unless all are there."""
    choices = [[folder / f"{file}.gz", folder / file] for file in IDX_FILES]
    found = [next((path for path in paths if path.is_file()), None) for paths in choices]
    return [path for path in found if path] if all(found) else []


def read_arrays(path: Path, npz_sha256: str = "") -> list[Array]:
    """Read training images and labels, test images and labels, from an archive or a folder of idx files."""
    if path.is_file():
        arrays, paths = read_npz(path, ARRAY_NAMES, npz_sha256), [path] * len(ARRAY_NAMES)
    else:
        npz_sha256, paths = "", find_idx_files(path)
        arrays = [read_idx(file, dimensions) for file, dimensions in zip(paths, (3, 1, 3, 1), strict=True)]
    check_arrays(arrays, paths, SHAPE, CLASSES, npz_sha256)
    return arrays


def make_split(images: Array, labels: Array) -> Split:
    """Make samples of images with one channel."""
    writable = np.require(images, requirements="W")  # arrays from idx files are read-only and are copied
    return Split(torch.from_numpy(writable).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


# These means and deviations give the published white pixels, 2.8215 on MNIST and 2.2278 on Fashion-MNIST. The true
# deviation of Fashion-MNIST is 0.3530; the published experiments divide by 0.3205.
MNIST = MNISTLoader(
    name="mnist",
    summary="70,000 handwritten digits in ten classes, 28x28",
    mean=0.1307,
    std=0.3081,
    home="https://ossci-datasets.s3.amazonaws.com/mnist/",
    sha256=(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    contents="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    test_labels="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    npz_sha256="06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
)

FASHION_MNIST = MNISTLoader(
    name="fashion-mnist",
    summary="70,000 images of clothing in ten classes, 28x28",
    mean=0.2860,
    std=0.3205,
    home="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    sha256=(
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    contents="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    test_labels="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    npz_sha256="5b6d2c4c694a91887af8ab7d039c04f80af3c29378d731c93a538d2e831aa469",
)

MNIST_SAMPLE = MNISTLoader(
    name="mnist-sample",
    summary="14,000 of MNIST's digits, shipped with this package",
    mean=MNIST.mean,
    std=MNIST.std,
    shipped=Path(__file__).parents[1] / "sample" / "mnist.npz",
)
