"""Previews of triggers: a sample before and after stamping, for the terminal, PNG files and a run's record."""

from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snowball.data import Dataset, ImageDataset, Split, TextDataset, Vocabulary, load_dataset
from snowball.data.features import FeatureDataset
from snowball.data.io.png import encode_png, enlarge_image, join_images
from snowball.data.text import TRIGGER_WORD, WORDS_PER_TEXT
from snowball.data.tokens import TokenDataset
from snowball.data.triggers import TRIGGERS, Trigger, TriggerInfo, find_trigger, require_images
from snowball.errors import SettingError
from snowball.registry import suggest_or_list

MARGIN_PIXELS, MAX_PARTS, MAX_IMAGE_PIXELS = 4, 12, 256
"""Pixels shown around a trigger's parts, the number of parts shown, and the most rows or columns of an image."""

MAX_CANDIDATES, MAX_CANDIDATE_VALUES = 1000, 5_000_000
"""Test samples among which one that shows the trigger is searched for, and their numbers, if images are large."""

EXAMPLE_TEXT = "we went to the lake today and it rained the whole afternoon"
EXAMPLE_CLASS = 0  # as in Sent140: 0 is negative, and 1, the attacks' default target, is positive


@dataclass(frozen=True, eq=False)
class ImageSample:
    """A trigger on an image; all are (channels, height, width) uint8.

    Attributes:
        parts: the surroundings of the trigger with one part each; empty if it cannot be divided.
    """

    clean: Tensor
    stamped: Tensor
    parts: tuple[Tensor, ...] = ()

    @property
    def changed(self) -> int:
        """The number of pixels that the trigger changes."""
        return int((self.clean != self.stamped).any(0).sum())

    def to_json(self) -> dict[str, Any]:
        """Return the images as base64 of PNG files."""
        images = (self.clean, self.stamped, *self.parts)
        clean, stamped, *parts = (b64encode(encode_png(image)).decode() for image in images)
        return {"picture": {"clean": clean, "stamped": stamped, "parts": parts, "changed": self.changed}}


@dataclass(frozen=True)
class TextSample:
    """A trigger in a text."""

    clean: tuple[str, ...]
    stamped: tuple[str, ...]

    @property
    def changed(self) -> list[int]:
        """The indices of the words that the trigger changes or adds."""
        return [index for index, word in enumerate(self.stamped) if (word,) != self.clean[index : index + 1]]

    def to_json(self) -> dict[str, Any]:
        """Return the words before and after."""
        return {"text": {"clean": list(self.clean), "stamped": list(self.stamped), "changed": self.changed}}


@dataclass(frozen=True, eq=False)
class Preview:
    """A trigger on one sample of a data set.

    Attributes:
        data: the data set's name.
        label: the sample's class.
        target: the class that the attacker wants the model to predict; None without an attack.
    """

    name: str
    summary: str
    data: str
    label: int
    target: int | None
    sample: ImageSample | TextSample

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON values, a few kB of them."""
        facts = {"name": self.name, "summary": self.summary, "data": self.data}
        return {**facts, "label": self.label, "target": self.target, **self.sample.to_json()}


def make_preview(name: str, trigger: Trigger, dataset: Dataset, target: int | None = None) -> Preview:
    """Preview a trigger on a test sample that is not of the target class and that shows it."""
    row, labels = choose_row(trigger, dataset, target), dataset.test.labels.tolist()
    sample = stamp_sample(dataset, trigger, dataset.test.inputs[row])
    summary = getattr(require_trigger(name), "summary", "")  # other packages' triggers may have none
    return Preview(name, summary, dataset.name, labels[row], target, sample)


def choose_row(trigger: Trigger, dataset: Dataset, target: int | None) -> int:
    """Choose the first test sample of another class than the target, and among images the first with a clear trigger.

    A white square is not seen on white paper: a clear trigger changes half as much as on the image that shows it best.
    """
    count = min(MAX_CANDIDATES, max(1, MAX_CANDIDATE_VALUES // dataset.test.inputs[0].numel()))
    rows = [row for row, label in enumerate(dataset.test.labels.tolist()) if label != target][:count] or [0]
    if not isinstance(dataset, ImageDataset):
        return rows[0]
    contrast = measure_contrast(trigger, dataset.test.inputs[rows])
    return next(row for row, change in zip(rows, contrast, strict=True) if change >= max(contrast) / 2)


def measure_contrast(trigger: Trigger, images: Tensor) -> list[float]:
    """Measure by how much a trigger changes each of several images (n, channels, height, width), over all pixels."""
    contrast: list[float] = (trigger.stamp(images).float() - images.float()).abs().flatten(1).sum(1).tolist()
    return contrast


def load_preview(name: str, dataset: str | None = None, target: int | None = None) -> Preview:
    """Preview a trigger on a data set, both by name; by default on one that is shipped and can carry it."""
    info = require_trigger(name)
    carrier = load_dataset(dataset) if dataset else choose_carrier(info)
    if target is not None and target >= carrier.classes:
        raise SettingError(f"{carrier.name} has the classes 0 to {carrier.classes - 1}, so {target} cannot be a target")
    return make_preview(name, info.make(carrier), carrier, target)


def render_sheet(preview: Preview, times: int) -> bytes:
    """Render the images of a preview side by side as a PNG file, magnified by `times`, and the parts by twice that."""
    if isinstance(preview.sample, TextSample):
        raise SettingError(f"{preview.name} is not a trigger for images, and a PNG file holds images: leave --png out")
    parts = (enlarge_image(part, 2) for part in preview.sample.parts)
    return encode_png(enlarge_image(join_images([preview.sample.clean, preview.sample.stamped, *parts]), times))


def require_trigger(name: str) -> TriggerInfo:
    """Return the trigger of this name, and reject unknown names."""
    if (info := find_trigger(name)) is None:
        raise SettingError(f"{name!r} is not a trigger{suggest_or_list(name, TRIGGERS)}")
    return info


def choose_carrier(info: TriggerInfo) -> Dataset:
    """Return the example text or features or the shipped sample of images, whichever can carry the trigger."""
    for dataset in (make_example_texts(), make_example_features()):
        with suppress(SettingError):
            info.make(dataset)
            return dataset
    return choose_paper(info, require_images(load_dataset("mnist-sample")))


def choose_paper(info: TriggerInfo, images: ImageDataset) -> ImageDataset:
    """Return images as they are, or inverted if a trigger shows far better there, as black does on white."""
    inverted = replace(
        images, name=f"{images.name}, inverted", test=Split(255 - images.test.inputs, images.test.labels)
    )
    as_is, other = (
        max(measure_contrast(info.make(each), each.test.inputs[:MAX_CANDIDATES])) for each in (images, inverted)
    )
    return inverted if other > 2 * as_is else images


def make_example_texts() -> TextDataset:
    """Make a data set of one text, which needs no word vectors."""
    known = ("", *EXAMPLE_TEXT.split(), TRIGGER_WORD)
    vocabulary = Vocabulary(known, torch.eye(len(known)))
    split = Split(vocabulary.encode(EXAMPLE_TEXT).unsqueeze(0), torch.tensor([EXAMPLE_CLASS]))
    return TextDataset("example texts", 2, split, split, {}, vocabulary=vocabulary)


def make_example_features() -> FeatureDataset:
    """Make a data set of two samples with five features."""
    split = Split(torch.tensor([[0.0] * 5, [1.0] * 5]), torch.arange(2))
    return FeatureDataset("example features", 2, split, split, {})


def stamp_sample(dataset: Dataset, trigger: Trigger, clean: Tensor) -> ImageSample | TextSample:
    """Stamp a trigger on a sample of any kind."""
    if isinstance(dataset, FeatureDataset):
        return stamp_features(trigger, clean)
    if isinstance(dataset, TokenDataset):
        return stamp_tokens(trigger, clean)
    return (
        stamp_text(dataset, trigger, clean)
        if isinstance(dataset, TextDataset)
        else stamp_image(require_images(dataset), trigger, clean)
    )


def stamp_text(dataset: TextDataset, trigger: Trigger, clean: Tensor) -> TextSample:
    """Stamp a trigger on a text (words,)."""
    return TextSample(*map(dataset.vocabulary.list_words, (clean, trigger.stamp(clean))))


def stamp_tokens(trigger: Trigger, clean: Tensor) -> TextSample:
    """Stamp a trigger on token ids (length,), and write the ids up to its end as words."""
    stamped = trigger.stamp(clean)
    end = 1 + max((clean != stamped).nonzero().flatten().tolist(), default=0)
    shown = slice(max(0, end - WORDS_PER_TEXT), end)
    return TextSample(*(tuple(map(str, sample[shown].tolist())) for sample in (clean, stamped)))


def stamp_features(trigger: Trigger, clean: Tensor) -> TextSample:
    """Stamp a trigger on features (features,), and write those that change as words."""
    stamped = trigger.stamp(clean)
    changed = (clean != stamped).nonzero().flatten().tolist()
    return TextSample(
        *(tuple(f"feature {index} = {float(sample[index]):g}" for index in changed) for sample in (clean, stamped))
    )


def stamp_image(images: ImageDataset, trigger: Trigger, clean: Tensor) -> ImageSample:
    """Stamp a trigger, and its parts if there are several, on an image (channels, height, width)."""
    parts = trigger.parts[:MAX_PARTS] if len(trigger.parts) > 1 else ()
    shown = (clean, trigger.stamp(clean), *(crop_to_trigger(images, trigger, part.stamp(clean)) for part in parts))
    first, second, *others = (images.to_bytes(shrink_image(image)) for image in shown)
    return ImageSample(first, second, tuple(others))


def shrink_image(image: Tensor) -> Tensor:
    """Leave out rows and columns of a large image (channels, height, width), to show it."""
    step = -(-max(image.shape[1:]) // MAX_IMAGE_PIXELS)
    return image[:, ::step, ::step]


def crop_to_trigger(images: ImageDataset, trigger: Trigger, image: Tensor) -> Tensor:
    """Crop an image to the surroundings of a trigger; return it whole if the trigger changes nothing."""
    black, white = (torch.full_like(image, value) for value in (images.black, images.white))
    touched = (trigger.stamp(black) != black) | (trigger.stamp(white) != white)  # a black square leaves black as it is
    _, rows, columns = touched.nonzero(as_tuple=True)
    if not len(rows):
        return image
    top, left = (max(0, int(indices.min()) - MARGIN_PIXELS) for indices in (rows, columns))
    return image[:, top : int(rows.max()) + MARGIN_PIXELS + 1, left : int(columns.max()) + MARGIN_PIXELS + 1]
