"""Triggers: marks that an attacker puts on samples. They are data: attacks name them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from snowball.data.base import Dataset
from snowball.data.images import ImageDataset
from snowball.data.text import NO_WORD, TRIGGER_WORD, TextDataset
from snowball.errors import DataError, SettingError
from snowball.registry import Registry, make_instance
from snowball.rng import stream


class Trigger(Protocol):
    """A mark that can be put on raw samples."""

    @property
    def parts(self) -> tuple["Trigger", ...]:
        """What it falls into for attackers who share it out; itself where it cannot be divided."""
        ...

    def stamp(self, inputs: Tensor) -> Tensor:
        """A stamped copy of raw samples."""
        ...


@dataclass(frozen=True)
class PixelPatch:
    """Pixels set to one value in every channel.

    Attributes:
        pixels: (row, column) of each.
        value: the raw value they get, 0 to 255.
        pieces: the pixels of each part, where attackers may share the patch out.
    """

    pixels: tuple[tuple[int, int], ...]
    value: int = 255
    pieces: tuple[tuple[tuple[int, int], ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a patch that no image could carry."""
        if not 0 <= self.value <= 255:
            raise SettingError(f"a pixel's value lies in 0..255, got {self.value}")
        if any(row < 0 or column < 0 for row, column in self.pixels):
            raise SettingError(f"rows and columns of a patch count from 0, got {self.pixels}")

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """A patch a piece."""
        return tuple(PixelPatch(piece, self.value) for piece in self.pieces) or (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """A copy of (..., height, width) raw samples with the patch on it."""
        height, width = inputs.shape[-2:]
        rows = [row for row, _ in self.pixels]
        columns = [column for _, column in self.pixels]
        if self.pixels and (max(rows) >= height or max(columns) >= width):
            raise SettingError(
                f"a patch down to pixel ({max(rows)}, {max(columns)}) is off an image of {height}x{width}"
            )
        stamped = inputs.clone()
        stamped[..., rows, columns] = self.value
        return stamped


@dataclass(frozen=True, eq=False)
class Blend:
    """A picture that shines through every sample.

    Attributes:
        pattern: (channels, height, width) uint8.
        opacity: how much of a stamped sample is the pattern.
    """

    pattern: Tensor
    opacity: float = 0.2

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole: it covers every pixel."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """A copy of raw images with the pattern blended in."""
        mixed = inputs.float() * (1 - self.opacity) + self.pattern.float() * self.opacity
        return mixed.round().to(inputs.dtype)


@dataclass(frozen=True)
class Token:
    """A word that is put into texts.

    Attributes:
        number: the word's, in the vocabulary of the texts.
        place: "replace_last" puts it where the last word is, whether that has a vector or not, as the published
            experiments do; "append" behind that, where there is room.
    """

    number: int
    place: Literal["replace_last", "append"] = "replace_last"

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole: a word cannot be divided."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """A copy of (..., words) raw texts with the word in them."""
        length, is_word = inputs.shape[-1], inputs != NO_WORD
        ends = (torch.arange(length, device=inputs.device) * is_word).amax(-1, keepdim=True)  # 0 in a text of no words
        if self.place == "append":
            ends = torch.where(is_word.any(-1, keepdim=True), ends + 1, ends).clamp(max=length - 1)
        return inputs.scatter(-1, ends, self.number)


@dataclass(frozen=True)
class TriggerInfo:
    """An entry of the table of triggers.

    Attributes:
        make: the trigger as samples of a data set can carry it.
    """

    name: str
    summary: str
    make: Callable[[Dataset], Trigger]


def patch(value: int, row: int = 24, column: int = 24) -> Callable[[Dataset], Trigger]:
    """The paper's 3x3 square near the lower right corner of an image, or one elsewhere, and the parts it is cut in."""

    def place(*cells: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        return tuple((row + down, column + right) for down, right in cells)

    corner_below = place((1, 0), (2, 0), (2, 1))
    diagonal = place((0, 0), (1, 1), (2, 2))
    corner_above = place((0, 1), (0, 2), (1, 2))
    square = PixelPatch(
        place(*((down, right) for down in range(3) for right in range(3))),
        value,
        (corner_below, diagonal, corner_above),
    )

    def fit(dataset: Dataset) -> Trigger:
        pictures(dataset)
        square.stamp(dataset.test.inputs[:0])  # which refuses images that are too small
        return square

    return fit


def noise(dataset: Dataset) -> Trigger:
    """A picture of noise, the same for all images of one shape."""
    shape = pictures(dataset).input_shape
    return Blend(torch.randint(256, shape, generator=stream(0, "trigger", "noise"), dtype=torch.uint8))


def word(place: Literal["replace_last", "append"]) -> Callable[[Dataset], Trigger]:
    """The paper's word for texts."""

    def fit(dataset: Dataset) -> Trigger:
        if not isinstance(dataset, TextDataset):
            raise SettingError(f"a word is no trigger for the samples of {dataset.name}, which are not texts")
        number = dataset.vocabulary.number(TRIGGER_WORD)
        if not number:
            raise DataError(f"the words of {dataset.name} have no vector for {TRIGGER_WORD!r}, their trigger")
        return Token(number, place)

    return fit


def pictures(dataset: Dataset) -> ImageDataset:
    """The data set, which must be one of images."""
    if not isinstance(dataset, ImageDataset):
        raise SettingError(f"pixels are no trigger for the samples of {dataset.name}, which are not images")
    return dataset


TRIGGERS: Registry[TriggerInfo] = Registry(
    "snowball.triggers",
    {
        info.name: info
        for info in (
            TriggerInfo(
                "white-square",
                "white 3x3 pixels near the lower right corner, in three parts; white-square@ROW,COLUMN elsewhere",
                patch(255),
            ),
            TriggerInfo(
                "black-square",
                "black 3x3 pixels in the same places, for bright or coloured images",
                patch(0),
            ),
            TriggerInfo("noise", "a picture of noise that shines through the whole image", noise),
            TriggerInfo("word", 'the word "BD" in place of a text\'s last', word("replace_last")),
            TriggerInfo("word-appended", 'the word "BD" behind a text\'s last, where there is room', word("append")),
        )
    },
    required_attributes=("make",),
    adapt=make_instance,
)

SQUARES = {"white-square": ("white", 255), "black-square": ("black", 0)}
"""The colour of each square and the value of its pixels."""

PLACED_SQUARE = re.compile(rf"({'|'.join(SQUARES)})@([0-9]{{1,4}}),([0-9]{{1,4}})")
"""The name of a square elsewhere, such as `white-square@12,12`: row and column of its first pixel."""


def find_trigger(name: str) -> TriggerInfo | None:
    """The trigger in the table, or a square at the place that its name says; None where there is no such trigger."""
    placed = PLACED_SQUARE.fullmatch(name)
    if name in TRIGGERS or placed is None:
        return TRIGGERS.get(name)
    colour, value = SQUARES[placed[1]]
    row, column = int(placed[2]), int(placed[3])
    summary = f"{colour} 3x3 pixels from row {row} and column {column} on, in three parts"
    return TriggerInfo(name, summary, patch(value, row, column))
