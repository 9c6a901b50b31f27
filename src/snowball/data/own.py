"""Data of a caller's own: arrays or a torch Dataset become a data set of the simulator.

The kind of the samples follows from their shape and type: (n, channels, height, width) and (n, height, width) are
images, (n, features) of floats are features, (n, length) of integers are token ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from snowball.data.base import Dataset, Provenance, Split
from snowball.data.features import FeatureDataset
from snowball.data.images import FloatImageDataset, ImageDataset
from snowball.data.io.cache import Tensors, hash_tensors
from snowball.data.tokens import TokenDataset
from snowball.errors import DataError, describe_error
from snowball.rng import stream

TEST_SHARE = 0.2
"""Share of the samples that become test samples if none are given."""

MAX_TOKEN_ID = 10_000_000
"""Larger integers are not token ids: a vocabulary of this size would need gigabytes."""

DISPLAY_NAME = "own data"
"""The name of such a data set in messages and reports."""

Samples = TorchDataset[Any] | Sequence[Any]
"""Samples and labels: a Dataset of (input, label) items, torch's or like it, or a pair of arrays (inputs, labels)."""


@dataclass(frozen=True, eq=False)
class OwnData:
    """Data of your own, for the argument `data` of `run` and `load_experiment`.

    Images may have any size and number of channels: (n, channels, height, width) or (n, height, width). Integer
    pixels from 0 to 255 reach the model as floats from 0 to 1; float images and features (n, features) reach it
    unchanged, and so do token ids (n, length), in which 0 is padding. Labels are integers from 0.

    Attributes:
        train: a torch Dataset of (input, label) items, such as torchvision's, or another object with items and a
            length; or a pair (inputs, labels) of tensors or arrays.
        test: the same for testing; by default, a fifth of the training samples, drawn by the experiment's seed.
        clients: the client of each training sample, as numbers or names; the partition is then `natural` by default.
        classes: the number of classes; by default, one more than the highest label, and every class must occur.
    """

    train: Samples
    test: Samples | None = None
    clients: Any = None
    classes: int | None = None

    def count_clients(self) -> int | None:
        """Return the number of natural clients; None if there are none."""
        return None if self.clients is None else len(np.unique(number_clients(self.clients)))

    def build_dataset(self, seed: int) -> Dataset:
        """Check the data and build the data set of an experiment with this seed."""
        train = read_split(self.train, "data")
        groups = None if self.clients is None else number_clients(self.clients)
        if groups is not None and len(groups) != len(train):
            raise DataError(f"{len(train)} training samples need as many client ids, got {len(groups)}")
        test = None if self.test is None else read_split(self.test, "test")
        if test is not None:
            refuse_other_kind(train, test)
        labels = train.labels if test is None else torch.cat([train.labels, test.labels])
        classes = count_classes(labels, self.classes)
        if test is None:
            chosen = draw_test_samples(len(train), groups, seed)
            train, test, groups = train[~chosen], train[chosen], groups if groups is None else groups[~chosen]
        return assemble_dataset(train, test, groups, classes, describe_data(train, test, groups, classes))


def wrap_data(data: OwnData | Samples) -> OwnData:
    """Return data as `OwnData`; a torch Dataset or a pair becomes its training part."""
    return data if isinstance(data, OwnData) else OwnData(data)


def read_split(source: Any, name: str) -> Split:
    """Read and check the samples and labels of a source; `name` names it in errors."""
    if isinstance(source, TensorDataset):
        source = source.tensors
    if isinstance(source, TorchDataset) or is_map_style(source):
        source = read_items(source, name)
    if not isinstance(source, tuple | list) or len(source) != 2:
        given = f"{len(source)} of them" if isinstance(source, tuple | list) else type(source).__name__
        raise DataError(f"{name} must be a torch Dataset or a pair (inputs, labels), got {given}")
    inputs, labels = to_tensor(source[0], f"the inputs of {name}"), to_tensor(source[1], f"the labels of {name}")
    if not inputs.ndim or not len(inputs):
        raise DataError(f"{name} has no samples")
    return Split(check_inputs(inputs, name), check_labels(labels, len(inputs), name))


def is_map_style(source: Any) -> bool:
    """Return whether an object has items by number and a length, as torch expects of a Dataset, and is not an array."""
    array = isinstance(source, tuple | list | str | bytes | Mapping | Tensor | np.ndarray)
    return not array and hasattr(source, "__getitem__") and hasattr(source, "__len__")


def read_items(dataset: Any, name: str) -> tuple[Tensor, Tensor]:
    """Read all items of a Dataset, once."""
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    for number, item in iterate_items(dataset, name):
        if not isinstance(item, tuple | list) or len(item) != 2:
            given = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
            raise DataError(f"items of {name} must be pairs (input, label), but item {number} is {given}")
        pair = [to_tensor(each, f"item {number} of {name}") for each in item]
        if inputs and pair[0].shape != inputs[0].shape:
            shapes = f"item 0 has {tuple(inputs[0].shape)}, item {number} has {tuple(pair[0].shape)}"
            raise DataError(f"items of {name} must have one shape: {shapes}")
        if pair[1].ndim:
            raise DataError(f"the label of item {number} of {name} must be one number, got {tuple(pair[1].shape)}")
        inputs.append(pair[0])
        labels.append(pair[1])
    if not inputs:
        raise DataError(f"{name} has no samples")
    return torch.stack(inputs), torch.stack(labels)


def iterate_items(dataset: Any, name: str) -> Iterator[tuple[int, Any]]:
    """Yield the items of a torch Dataset with their numbers; say which of them cannot be read, and why."""
    number = -1
    try:
        items = (dataset[index] for index in range(len(dataset))) if hasattr(dataset, "__len__") else iter(dataset)
        for number, item in enumerate(items):
            yield number, item
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"item {number + 1} of {name} cannot be read: {describe_error(error)}") from error


def to_tensor(values: Any, name: str) -> Tensor:
    """Copy numbers into a tensor on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().cpu().clone(memory_format=torch.contiguous_format)
    try:
        array = read_pillow_image(values, name) if is_pillow_image(values) else np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise DataError(f"{name} cannot be read as one array: {describe_error(error)}") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numbers, got {array.dtype} values")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch can hardly compute with other unsigned types
    return torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))


def is_pillow_image(values: Any) -> bool:
    """Return whether an object is an image of Pillow, which torchvision's data sets hold without a transform."""
    return hasattr(values, "getbands") and hasattr(values, "mode")


def read_pillow_image(image: Any, name: str) -> npt.NDArray[Any]:
    """Return the pixels of an image of Pillow, with its channels first if it has several."""
    if image.mode == "P":
        raise DataError(f"{name} is an image with a palette: convert it, e.g. with image.convert('RGB')")
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels


def check_inputs(inputs: Tensor, name: str) -> Tensor:
    """Return samples in the type that their kind is kept in, and refuse those of no kind."""
    shape = tuple(inputs.shape[1:])
    if len(shape) not in (1, 2, 3) or 0 in shape:
        kinds = "images (n, channels, height, width) or (n, height, width), features (n, d) or token ids (n, length)"
        raise DataError(f"the inputs of {name} have shape {tuple(inputs.shape)}, expected {kinds}")
    if inputs.is_complex() or inputs.dtype == torch.bool:
        raise DataError(f"the inputs of {name} must be integers or floats, got {str(inputs.dtype)[6:]}")
    if len(shape) == 3 and shape[2] == 3 < shape[0] == shape[1]:
        advice = "move them to the front, e.g. x.transpose(0, 3, 1, 2) in NumPy"
        raise DataError(f"the images of {name} have shape {shape}, with their channels last: {advice}")
    if inputs.is_floating_point():
        check_finite(inputs := inputs.float(), name)
    else:
        inputs = check_integers(inputs, name)
    return inputs.unsqueeze(1) if len(shape) == 2 else inputs


def check_finite(inputs: Tensor, name: str) -> None:
    """Refuse samples with numbers that are not finite."""
    broken = (~inputs.isfinite()).flatten(1).any(1).nonzero().flatten()
    if len(broken):
        raise DataError(f"sample {int(broken[0])} of {name} holds NaN or infinity: remove or replace such values")


def check_integers(inputs: Tensor, name: str) -> Tensor:
    """Return integers as pixels of one byte or as token ids; refuse those that are neither."""
    lowest, highest = int(inputs.min()), int(inputs.max())
    if inputs.ndim > 2:
        if lowest < 0 or highest > 255:
            raise DataError(
                f"integer pixels must lie in 0 to 255, but those of {name} run from {lowest} to {highest}: "
                "pass other values as floats"
            )
        return inputs.to(torch.uint8)
    if lowest < 0 or highest > MAX_TOKEN_ID:
        raise DataError(
            f"token ids must lie in 0 to {MAX_TOKEN_ID}, but those of {name} run from {lowest} to {highest}: "
            "pass features as floats"
        )
    return inputs.long()


def check_labels(labels: Tensor, count: int, name: str) -> Tensor:
    """Return the labels of `count` samples as int64; refuse what are not class numbers."""
    if labels.shape != (count,):
        raise DataError(f"{count} samples of {name} need as many labels, got shape {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"the labels of {name} must be integers from 0, got {str(labels.dtype)[6:]}")
    if (lowest := int(labels.min())) < 0:
        raise DataError(f"the labels of {name} must be integers from 0, got {lowest}")
    return labels.long()


def refuse_other_kind(train: Split, test: Split) -> None:
    """Refuse test samples of another shape or type than the training samples."""
    kinds = [f"{str(split.inputs.dtype)[6:]} {tuple(split.inputs.shape[1:])}" for split in (test, train)]
    if kinds[0] != kinds[1]:
        raise DataError(f"test samples must be like training samples, but they are {kinds[0]}, not {kinds[1]}")


def count_classes(labels: Tensor, classes: int | None) -> int:
    """Return the number of classes, and refuse labels that do not number them from 0."""
    highest = int(labels.max())
    if classes is not None:
        if not (isinstance(classes, int) and classes >= 2) or highest >= classes:
            raise DataError(f"labels up to {highest} do not fit classes = {classes!r}: expected 0 to classes - 1")
        return classes
    present = torch.unique(labels)
    if len(present) < 2:
        raise DataError(f"all labels are {highest}: a classifier needs at least two classes")
    if len(present) <= highest:
        absent = int((present != torch.arange(len(present))).nonzero()[0])
        raise DataError(
            f"labels run from {int(present[0])} to {highest}, but no sample has label {absent}: "
            "number the classes from 0 without gaps, or give their number with OwnData(classes=...)"
        )
    return len(present)


def number_clients(ids: Any) -> Tensor:
    """Number clients from 0 by ascending id, (n,)."""
    array = np.asarray(ids.cpu() if isinstance(ids, Tensor) else ids)
    if array.ndim != 1 or array.dtype.kind not in "iuUSO":
        raise DataError(f"client ids must be a list of integers or names, got {array.dtype} of shape {array.shape}")
    try:
        return torch.from_numpy(np.unique(array, return_inverse=True)[1].astype(np.int64))
    except TypeError as error:  # names and numbers, or None
        raise DataError(f"client ids must be all integers or all names: {error}") from error


def draw_test_samples(count: int, groups: Tensor | None, seed: int) -> Tensor:
    """Draw test samples as a mask (n,); every natural client keeps at least one training sample."""
    order = torch.randperm(count, generator=stream(seed, "own data", "test"))
    kept = torch.zeros(count, dtype=torch.bool)
    if groups is not None:
        shuffled = groups[order].numpy()
        kept[order[torch.from_numpy(np.unique(shuffled, return_index=True)[1])]] = True
    drawn = order[~kept[order]][: max(1, round(TEST_SHARE * count))]
    if not 0 < len(drawn) < count:
        raise DataError(f"{count} samples are too few to draw test samples from: give more, or give test=")
    return torch.zeros(count, dtype=torch.bool).index_fill(0, drawn, True)


def assemble_dataset(train: Split, test: Split, groups: Tensor | None, classes: int, provenance: Provenance) -> Dataset:
    """Make the data set of checked samples; its class follows from their shape and type."""
    inputs = train.inputs
    common = (DISPLAY_NAME, classes, train, test, provenance, groups)
    if inputs.ndim == 4:
        if inputs.is_floating_point():
            return FloatImageDataset(*common)
        channels = inputs.shape[1]
        return ImageDataset(*common, mean=(0.0,) * channels, std=(1.0,) * channels)
    return FeatureDataset(*common) if inputs.is_floating_point() else TokenDataset(*common)


def describe_data(train: Split, test: Split, groups: Tensor | None, classes: int) -> Provenance:
    """Describe own data for a run's record."""
    return {
        "source": "python",
        "samples": f"{str(train.inputs.dtype)[6:]} {'x'.join(map(str, train.inputs.shape[1:]))}",
        "classes": classes,
        "train": len(train),
        "test": len(test),
        **({} if groups is None else {"clients": len(torch.unique(groups))}),
        "sha256": hash_tensors(collect_tensors(train, test, groups)),
    }


def collect_tensors(train: Split, test: Split, groups: Tensor | None) -> Tensors:
    """Return the tensors of own data by name."""
    tensors = {"train": train.inputs, "train_labels": train.labels, "test": test.inputs, "test_labels": test.labels}
    return tensors if groups is None else tensors | {"groups": groups}


def write_dataset(dataset: Dataset, path: Path) -> None:
    """Write own data to a file for worker processes."""
    tensors = collect_tensors(dataset.train, dataset.test, dataset.groups)
    save_file(tensors, path, {"classes": str(dataset.classes)})


def open_dataset(path: Path) -> Dataset:
    """Open own data that `write_dataset` wrote; processes share its memory, and the file may be removed afterwards."""
    with safe_open(path, "pt") as file:
        tensors: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        classes = int(file.metadata()["classes"])
    train, test = (Split(tensors[part], tensors[f"{part}_labels"]) for part in ("train", "test"))
    return assemble_dataset(train, test, tensors.get("groups"), classes, {})
