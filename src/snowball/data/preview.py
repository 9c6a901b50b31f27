"""What a trigger looks like: a sample before and after, for people, and as plain JSON for a run's record."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snowball.data import Dataset, Split, TextDataset, Vocabulary, load
from snowball.data.io.png import encode, enlarge, strip
from snowball.data.text import TRIGGER_WORD
from snowball.data.triggers import TRIGGERS, Trigger, TriggerInfo, find_trigger, pictures
from snowball.errors import SettingError
from snowball.registry import suggest_or_list

MARGIN, MOST = 4, 12
"""Pixels around a trigger that are shown with its parts, and how many of these are shown at most."""

EXAMPLE = "we went to the lake today and it was a lovely afternoon"


@dataclass(frozen=True, eq=False)
class Pictures:
    """A trigger on an image; all are (channels, height, width) uint8.

    Attributes:
        parts: the surroundings of the trigger with one of its parts each; none where it cannot be divided.
    """

    clean: Tensor
    stamped: Tensor
    parts: tuple[Tensor, ...] = ()

    @property
    def changed(self) -> int:
        """How many pixels the trigger changes."""
        return int((self.clean != self.stamped).any(0).sum())

    def plain(self) -> dict[str, Any]:
        """The images as base64 of PNG files."""
        images = (self.clean, self.stamped, *self.parts)
        clean, stamped, *parts = (b64encode(encode(image)).decode() for image in images)
        return {"picture": {"clean": clean, "stamped": stamped, "parts": parts, "changed": self.changed}}


@dataclass(frozen=True)
class Words:
    """A trigger in a text."""

    clean: tuple[str, ...]
    stamped: tuple[str, ...]

    @property
    def changed(self) -> list[int]:
        """The places of the words that the trigger changes or adds."""
        return [place for place, word in enumerate(self.stamped) if (word,) != self.clean[place : place + 1]]

    def plain(self) -> dict[str, Any]:
        """The words before and after."""
        return {"text": {"clean": list(self.clean), "stamped": list(self.stamped), "changed": self.changed}}


@dataclass(frozen=True, eq=False)
class Preview:
    """A trigger on one sample of a data set.

    Attributes:
        data: the data set's name.
        label: the sample's class.
        target: the class that the attacker wants it to be taken for; None where nobody attacks.
    """

    name: str
    summary: str
    data: str
    label: int
    target: int | None
    sample: Pictures | Words

    def plain(self) -> dict[str, Any]:
        """The same as JSON, in a few kB."""
        facts = {"name": self.name, "summary": self.summary, "data": self.data}
        return {**facts, "label": self.label, "target": self.target, **self.sample.plain()}


def preview(name: str, trigger: Trigger, dataset: Dataset, target: int | None = None) -> Preview:
    """A trigger on the first test sample that is not of the target class already."""
    labels = dataset.test.labels.tolist()
    row = next((row for row, label in enumerate(labels) if label != target), 0)
    clean = dataset.test.inputs[row]
    sample = words(dataset, trigger, clean) if isinstance(dataset, TextDataset) else drawn(dataset, trigger, clean)
    summary = getattr(named(name), "summary", "")  # other packages' triggers may have none
    return Preview(name, summary, dataset.name, labels[row], target, sample)


def preview_of(name: str, dataset: str | None = None) -> Preview:
    """A trigger by its name, on a data set by its name, or on one that needs nothing and can carry it."""
    info = named(name)
    carrier = load(dataset) if dataset else carrier_of(info)
    return preview(name, info.make(carrier), carrier)


def sheet(preview: Preview, times: int) -> bytes:
    """The images of a preview side by side as a PNG file, so many times as large; the parts are twice that."""
    if isinstance(preview.sample, Words):
        raise SettingError(f"{preview.name} is a trigger of texts, and a PNG file holds pictures: leave --png out")
    parts = (enlarge(part, 2) for part in preview.sample.parts)
    return encode(enlarge(strip([preview.sample.clean, preview.sample.stamped, *parts]), times))


def named(name: str) -> TriggerInfo:
    """The trigger of this name."""
    if (info := find_trigger(name)) is None:
        raise SettingError(f"{name!r} is not a trigger{suggest_or_list(name, TRIGGERS)}")
    return info


def carrier_of(info: TriggerInfo) -> Dataset:
    """The example text, or the shipped sample of images, whichever can carry the trigger."""
    text = example_text()
    try:
        info.make(text)
    except SettingError:
        return load("mnist-sample")
    return text


def example_text() -> TextDataset:
    """A data set of one text, which needs no word vectors."""
    known = ("", *EXAMPLE.split(), TRIGGER_WORD)
    vocabulary = Vocabulary(known, torch.eye(len(known)))
    split = Split(vocabulary.encode(EXAMPLE).unsqueeze(0), torch.tensor([1]))
    return TextDataset("example texts", 2, split, split, {}, vocabulary=vocabulary)


def words(dataset: TextDataset, trigger: Trigger, clean: Tensor) -> Words:
    """A trigger in a text (words,)."""
    return Words(*map(dataset.vocabulary.spell, (clean, trigger.stamp(clean))))


def drawn(dataset: Dataset, trigger: Trigger, clean: Tensor) -> Pictures:
    """A trigger on an image (channels, height, width), and its parts where there are several."""
    pictures(dataset)
    parts = trigger.parts[:MOST] if len(trigger.parts) > 1 else ()
    return Pictures(clean, trigger.stamp(clean), tuple(around(trigger, part.stamp(clean)) for part in parts))


def around(trigger: Trigger, image: Tensor) -> Tensor:
    """What of an image lies on a trigger or near it; all of it where the trigger is nowhere."""
    black, white = torch.zeros_like(image), torch.full_like(image, 255)
    touched = (trigger.stamp(black) != black) | (trigger.stamp(white) != white)  # a black square leaves black as it is
    _, rows, columns = touched.nonzero(as_tuple=True)
    if not len(rows):
        return image
    top, left = (max(0, int(places.min()) - MARGIN) for places in (rows, columns))
    return image[:, top : int(rows.max()) + MARGIN + 1, left : int(columns.max()) + MARGIN + 1]
