"""Previews of triggers: a sample before and after stamping, for the terminal, PNG files and a run's record."""

from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snowball.data import Dataset, ImageDataset, Split, TextDataset, Vocabulary, load_dataset
from snowball.data.io.png import encode_png, enlarge_image, join_images
from snowball.data.text import TRIGGER_WORD
from snowball.data.triggers import TRIGGERS, Trigger, TriggerInfo, find_trigger, require_images
from snowball.errors import SettingError
from snowball.registry import suggest_or_list

MARGIN_PIXELS, MAX_PARTS = 4, 12
"""Pixels shown around a trigger's parts, and the number of parts shown."""

MAX_CANDIDATES = 1000
"""Test samples among which one that shows the trigger is searched for."""

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
    clean = dataset.test.inputs[row]
    sample = (
        stamp_text(dataset, trigger, clean)
        if isinstance(dataset, TextDataset)
        else stamp_image(dataset, trigger, clean)
    )
    summary = getattr(require_trigger(name), "summary", "")  # other packages' triggers may have none
    return Preview(name, summary, dataset.name, labels[row], target, sample)


def choose_row(trigger: Trigger, dataset: Dataset, target: int | None) -> int:
    """Choose the first test sample of another class than the target, and among images the first with a clear trigger.

    A white square is not seen on white paper: a clear trigger changes half as much as on the image that shows it best.
    """
    rows = [row for row, label in enumerate(dataset.test.labels.tolist()) if label != target][:MAX_CANDIDATES] or [0]
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
        raise SettingError(f"{preview.name} is a trigger for texts, and a PNG file holds images: leave --png out")
    parts = (enlarge_image(part, 2) for part in preview.sample.parts)
    return encode_png(enlarge_image(join_images([preview.sample.clean, preview.sample.stamped, *parts]), times))


def require_trigger(name: str) -> TriggerInfo:
    """Return the trigger of this name, and reject unknown names."""
    if (info := find_trigger(name)) is None:
        raise SettingError(f"{name!r} is not a trigger{suggest_or_list(name, TRIGGERS)}")
    return info


def choose_carrier(info: TriggerInfo) -> Dataset:
    """Return the example text or the shipped sample of images, whichever can carry the trigger."""
    text = make_example_texts()
    try:
        info.make(text)
    except SettingError:
        return choose_paper(info, require_images(load_dataset("mnist-sample")))
    return text


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


def stamp_text(dataset: TextDataset, trigger: Trigger, clean: Tensor) -> TextSample:
    """Stamp a trigger on a text (words,)."""
    return TextSample(*map(dataset.vocabulary.list_words, (clean, trigger.stamp(clean))))


def stamp_image(dataset: Dataset, trigger: Trigger, clean: Tensor) -> ImageSample:
    """Stamp a trigger, and its parts if there are several, on an image (channels, height, width)."""
    require_images(dataset)
    parts = trigger.parts[:MAX_PARTS] if len(trigger.parts) > 1 else ()
    return ImageSample(
        clean, trigger.stamp(clean), tuple(crop_to_trigger(trigger, part.stamp(clean)) for part in parts)
    )


def crop_to_trigger(trigger: Trigger, image: Tensor) -> Tensor:
    """Crop an image to the surroundings of a trigger; return it whole if the trigger changes nothing."""
    black, white = torch.zeros_like(image), torch.full_like(image, 255)
    touched = (trigger.stamp(black) != black) | (trigger.stamp(white) != white)  # a black square leaves black as it is
    _, rows, columns = touched.nonzero(as_tuple=True)
    if not len(rows):
        return image
    top, left = (max(0, int(indices.min()) - MARGIN_PIXELS) for indices in (rows, columns))
    return image[:, top : int(rows.max()) + MARGIN_PIXELS + 1, left : int(columns.max()) + MARGIN_PIXELS + 1]
