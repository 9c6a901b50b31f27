"""Data of a caller's own, good and bad."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from snowball.data import Dataset, ImageDataset, OwnData, load_dataset
from snowball.data.features import FeatureDataset
from snowball.data.images import FloatImageDataset
from snowball.data.own import open_dataset, wrap_data, write_dataset
from snowball.data.tokens import TokenDataset
from snowball.errors import DataError, SettingError

DRAWS = np.random.default_rng(0)
COUNT = 40
IMAGES = DRAWS.random((COUNT, 8, 8))
LABELS = np.arange(COUNT) % 4
TOKENS = DRAWS.integers(1, 30, (COUNT, 7))


class Items(TorchDataset[Any]):
    """Given items; an error among them is raised."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


class Palette:
    """As an image of Pillow whose pixels are numbers of colours."""

    mode = "P"

    def getbands(self) -> tuple[str, ...]:
        return ("P",)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(IMAGES, LABELS, strict=True)


def build(inputs: Any = IMAGES, labels: Any = LABELS, **more: Any) -> Dataset:
    return OwnData((inputs, labels), **more).build_dataset(seed=1)


@pytest.mark.parametrize(
    ("inputs", "kind", "dtype", "shape"),
    [
        (IMAGES, FloatImageDataset, torch.float32, (1, 8, 8)),
        (IMAGES.astype(np.float16), FloatImageDataset, torch.float32, (1, 8, 8)),
        (IMAGES[:, None].repeat(3, axis=1), FloatImageDataset, torch.float32, (3, 8, 8)),
        ((IMAGES * 255).astype(np.uint8), ImageDataset, torch.uint8, (1, 8, 8)),
        ((IMAGES * 255).astype(np.int64)[:, None], ImageDataset, torch.uint8, (1, 8, 8)),
        ((IMAGES * 255).astype(np.uint16), ImageDataset, torch.uint8, (1, 8, 8)),
        (IMAGES[:, 0], FeatureDataset, torch.float32, (8,)),
        (TOKENS.astype(np.int32), TokenDataset, torch.int64, (7,)),
        (TOKENS.tolist(), TokenDataset, torch.int64, (7,)),
    ],
)
def test_the_kind_follows_from_shape_and_type(inputs: Any, kind: type, dtype: torch.dtype, shape: Any) -> None:
    data = build(inputs)
    assert type(data) is kind
    assert data.train.inputs.dtype == dtype
    assert (data.input_shape, data.classes) == (shape, 4)
    assert (len(data.train), len(data.test)) == (32, 8)
    noise = data.draw_inputs(5, torch.Generator().manual_seed(0))
    assert (noise.dtype, noise.shape) == (dtype, (5, *shape))


def test_floats_and_token_ids_reach_the_model_as_they_are_and_bytes_as_shares() -> None:
    for inputs in (IMAGES * 16 - 3, IMAGES[:, 0], TOKENS):
        data = build(inputs)
        assert data.normalise(data.train.inputs) is data.train.inputs
        back = data.standardise(data.scale(data.train.inputs))
        assert (back.float() - data.train.inputs.float()).abs().max() < 1e-5
    scaled = build(IMAGES * 16 - 3)
    shares = scaled.scale(scaled.train.inputs)
    assert (float(shares.min()), float(shares.max())) == (0, 1)
    pixels = build((IMAGES * 255).astype(np.uint8))
    assert torch.equal(pixels.normalise(pixels.test.inputs), pixels.test.inputs / 255)


def test_all_sources_of_the_same_samples_are_the_same_data() -> None:
    sources = [
        (IMAGES, LABELS),
        (IMAGES.tolist(), LABELS.tolist()),
        (torch.tensor(IMAGES), torch.tensor(LABELS, dtype=torch.int16)),
        TensorDataset(torch.tensor(IMAGES), torch.tensor(LABELS)),
        Items(*zip(IMAGES, LABELS.tolist(), strict=True)),
        Stream(),
    ]
    built = [wrap_data(source).build_dataset(1) for source in sources]
    assert len({data.provenance["sha256"] for data in built}) == 1
    assert dict(built[0].provenance) == {
        "source": "python",
        "samples": "float32 1x8x8",
        "classes": 4,
        "train": 32,
        "test": 8,
        "sha256": built[0].provenance["sha256"],
    }


@pytest.mark.parametrize(
    "other",
    [
        OwnData((IMAGES + 1, LABELS)),
        OwnData((IMAGES, LABELS[::-1].copy())),
        OwnData((IMAGES.astype(np.float32)[:, :4], LABELS)),
        OwnData((IMAGES, LABELS), test=(IMAGES, LABELS)),
        OwnData((IMAGES, LABELS), clients=LABELS),
    ],
)
def test_other_data_has_another_checksum(other: OwnData) -> None:
    assert other.build_dataset(1).provenance["sha256"] != build().provenance["sha256"]


def test_later_changes_of_an_array_do_not_reach_the_data() -> None:
    inputs, tensor = IMAGES.astype(np.float32), torch.tensor(IMAGES, dtype=torch.float32)
    built = [build(each, test=(each, LABELS)) for each in (inputs, tensor)]
    inputs[:], tensor[:] = 0, 0
    assert all(data.train.inputs.max() > 0 < data.test.inputs.max() for data in built)


def test_the_seed_draws_the_test_samples() -> None:
    first, again, other = (OwnData((TOKENS, LABELS)).build_dataset(seed).test.inputs for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    rows = sorted(map(tuple, torch.cat([first, OwnData((TOKENS, LABELS)).build_dataset(1).train.inputs]).tolist()))
    assert rows == sorted(map(tuple, TOKENS.tolist()))


def test_test_samples_are_taken_as_given() -> None:
    data = build(test=(IMAGES[:3], [3, 2, 1]))
    assert (len(data.train), data.test.labels.tolist()) == (COUNT, [3, 2, 1])


def test_client_ids_become_natural_clients_who_all_keep_a_sample() -> None:
    names = ["one", *["many"] * (COUNT - 2), "two"]
    data = build(clients=names)
    assert data.groups is not None
    assert set(data.groups.tolist()) == {0, 1, 2}
    assert len(data.groups) == len(data.train) == 32
    assert data.provenance["clients"] == OwnData((IMAGES, LABELS), clients=names).count_clients() == 3
    kept = data.train.inputs[data.groups == 1]  # names in ascending order: many, one, two
    assert torch.equal(kept[0, 0].double(), torch.tensor(IMAGES[0]).float().double())


def test_a_number_of_classes_may_be_given() -> None:
    assert build(labels=LABELS * 2, classes=9).classes == 9
    assert build(test=(IMAGES[:1], [4])).classes == 5


class Digits:
    """As torchvision's data sets: images of Pillow and numbers, and a transform; it needs no base class of torch."""

    def __init__(self, images: Any, transform: Any = None) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        return self.transform(image) if self.transform else image, int(LABELS[index])


class TorchDigits(Digits, TorchDataset[Any]):
    """The same as a Dataset of torch."""


@pytest.mark.parametrize("kind", [Digits, TorchDigits])
def test_data_sets_like_torchvisions_are_read_with_and_without_a_transform(kind: type[Digits]) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="the images are Pillow's")
    grey, colours = (IMAGES * 255).astype(np.uint8), DRAWS.integers(0, 256, (COUNT, 8, 6, 3), np.uint8)
    for pixels, expected in ((grey, grey[:, None]), (colours, colours.transpose(0, 3, 1, 2))):
        data = OwnData(kind([pillow.fromarray(each) for each in pixels])).build_dataset(seed=1)
        same = build(expected)
        assert torch.equal(data.train.inputs, same.train.inputs)
        assert torch.equal(data.test.labels, same.test.labels)
    scaled = kind([pillow.fromarray(each) for each in grey], lambda image: torch.from_numpy(np.array(image)) / 255)
    assert torch.equal(OwnData(scaled).build_dataset(seed=1).train.inputs, build(grey / np.float32(255)).train.inputs)


def test_a_part_of_a_data_set_is_read_too() -> None:
    whole = Items(*zip(IMAGES, LABELS, strict=True))
    part = OwnData(Subset(whole, range(8)), test=ConcatDataset([whole, whole])).build_dataset(seed=1)
    assert (len(part.train), len(part.test)) == (8, 80)
    assert torch.equal(part.train.inputs, build(IMAGES[:8], LABELS[:8], test=(IMAGES, LABELS)).train.inputs)


@pytest.mark.parametrize("inputs", [IMAGES, IMAGES[:, 0], TOKENS, (IMAGES * 255).astype(np.uint8)])
@pytest.mark.parametrize("clients", [None, LABELS])
def test_worker_processes_get_the_same_data(inputs: Any, clients: Any, tmp_path: Path) -> None:
    data = build(inputs, clients=clients)
    write_dataset(data, tmp_path / "data")
    read = open_dataset(tmp_path / "data")
    (tmp_path / "data").unlink()
    assert (type(read), read.classes, read.input_shape) == (type(data), data.classes, data.input_shape)
    pairs: list[tuple[Tensor | None, Tensor | None]] = [
        (read.train.inputs, data.train.inputs),
        (read.test.labels, data.test.labels),
        (read.groups, data.groups),
    ]
    assert all(one is other is None or torch.equal(one, other) for one, other in pairs)  # type: ignore[arg-type]


BROKEN = IMAGES.copy()
BROKEN[7, 0, 0] = np.nan

FAULTS: dict[str, tuple[Any, str]] = {
    "lengths differ": ((IMAGES, LABELS[:-1]), r"40 samples of data need as many labels, got shape \(39,\)"),
    "labels from 1": ((IMAGES, LABELS + 1), "labels run from 1 to 4, but no sample has label 0: number the classes"),
    "labels with gaps": ((IMAGES, LABELS * 2), "labels run from 0 to 6, but no sample has label 1"),
    "float labels": ((IMAGES, LABELS * 1.0), "labels of data must be integers from 0, got float64"),
    "negative labels": ((IMAGES, LABELS - 1), "labels of data must be integers from 0, got -1"),
    "truth values": ((IMAGES, LABELS > 1), "labels of data must be integers from 0, got bool"),
    "one-hot labels": ((IMAGES, np.eye(4)[LABELS]), r"need as many labels, got shape \(40, 4\)"),
    "NaN": ((BROKEN, LABELS), "sample 7 of data holds NaN or infinity: remove or replace"),
    "too large for float32": ((np.full((2, 3), 1e300), [0, 1]), "sample 0 of data holds NaN or infinity"),
    "no samples": ((IMAGES[:0], LABELS[:0]), "data has no samples"),
    "no items": (Items(), "data has no samples"),
    "one class": ((IMAGES, LABELS * 0), "all labels are 0: a classifier needs at least two classes"),
    "pixels above 255": (
        ((IMAGES * 300).astype(int), LABELS),
        "integer pixels must lie in 0 to 255, but those of data",
    ),
    "negative tokens": ((TOKENS - 9, LABELS), "token ids must lie in 0 to 10000000, .* pass features as floats"),
    "huge tokens": ((TOKENS * 10**9, LABELS), "token ids must lie in 0 to 10000000"),
    "channels last": ((DRAWS.random((4, 8, 8, 3)), [0, 1, 0, 1]), "with their channels last: move them to the front"),
    "no features": ((LABELS, LABELS), r"inputs of data have shape \(40,\), expected images"),
    "truth as input": ((IMAGES > 0, LABELS), "inputs of data must be integers or floats, got bool"),
    "texts": ((["a"] * COUNT, LABELS), "inputs of data must be numbers, got <U1 values"),
    "rows that differ": (([[1.0], [1.0, 2.0]], [0, 1]), "inputs of data cannot be read as one array: ValueError"),
    "no pair": (IMAGES, r"data must be a torch Dataset or a pair \(inputs, labels\), got ndarray"),
    "three arrays": ((IMAGES, LABELS, LABELS), r"a pair \(inputs, labels\), got 3 of them"),
    "items of three": (Items((IMAGES[0], 1, 2)), "must be pairs .*, but item 0 is 3 values"),
    "items of a dict": (Items({"x": 1}), "must be pairs .*, but item 0 is dict"),
    "items of other shapes": (
        Items((IMAGES[0], 1), (IMAGES[0][:5], 0)),
        r"items of data must have one shape: item 0 has \(8, 8\), item 1 has \(5, 8\)",
    ),
    "a label of many": (Items((IMAGES[0], LABELS)), r"label of item 0 of data must be one number, got \(40,\)"),
    "a map of names": (
        {"x": IMAGES, "y": LABELS},
        r"data must be a torch Dataset or a pair \(inputs, labels\), got dict",
    ),
    "a palette": (
        Items((Palette(), 1)),
        r"item 0 of data is an image with a palette: convert it, e\.g\. with image\.conv",
    ),
    "an item that fails": (Items((IMAGES[0], 1), OSError("gone")), "item 1 of data cannot be read: OSError: gone"),
    "too few for a test": ((IMAGES[:1], LABELS[:1]), "all labels are 0"),
    "other test shape": (
        OwnData((IMAGES, LABELS), test=(IMAGES[:, :5], LABELS)),
        r"test samples must be like training samples, but they are float32 \(1, 5, 8\), not float32 \(1, 8, 8\)",
    ),
    "other test type": (OwnData((IMAGES, LABELS), test=((IMAGES * 9).astype(int), LABELS)), "they are uint8"),
    "too few client ids": (
        OwnData((IMAGES, LABELS), clients=[1, 2, 3]),
        "40 training samples need as many client ids, got 3",
    ),
    "client ids of no kind": (OwnData((IMAGES, LABELS), clients=[None] * 20 + ["a"] * 20), "client ids must be all"),
    "float client ids": (OwnData((IMAGES, LABELS), clients=IMAGES[:, 0, 0]), "must be a list of integers or names"),
    "a client per sample": (OwnData((IMAGES, LABELS), clients=np.arange(COUNT)), "40 samples are too few to draw test"),
    "classes too few": (OwnData((IMAGES, LABELS), classes=3), "labels up to 3 do not fit classes = 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_data_is_said_in_one_sentence(fault: str) -> None:
    source, sentence = FAULTS[fault]
    with pytest.raises(DataError, match=sentence) as caught:
        wrap_data(source).build_dataset(1)
    assert "\n" not in str(caught.value)


def test_a_name_alone_is_not_data() -> None:
    with pytest.raises(SettingError, match=r"give it as snowball\.run\(\.\.\., data=\.\.\.\)"):
        load_dataset("own")
