"""Triggers: patterns that an attacker stamps on samples. Attacks refer to them by name."""

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
    """A pattern that can be stamped on raw samples."""

    @property
    def parts(self) -> tuple["Trigger", ...]:
        """The parts that attackers can divide among them; the trigger itself if it cannot be divided."""
        ...

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a stamped copy of raw samples."""
        ...


@dataclass(frozen=True)
class PixelPatch:
    """Pixels set to one value in every channel.

    Attributes:
        pixels: (row, column) of each pixel.
        value: their raw value, 0 to 255.
        pieces: the pixels of each part, if attackers may divide the patch among them.
    """

    pixels: tuple[tuple[int, int], ...]
    value: int = 255
    pieces: tuple[tuple[tuple[int, int], ...], ...] = ()

    def __post_init__(self) -> None:
        """Reject a patch that no image can carry."""
        if not 0 <= self.value <= 255:
            raise SettingError(f"a pixel's value must lie in 0..255, got {self.value}")
        if any(row < 0 or column < 0 for row, column in self.pixels):
            raise SettingError(f"rows and columns of a patch must not be negative, got {self.pixels}")

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """One patch per piece."""
        return tuple(PixelPatch(piece, self.value) for piece in self.pieces) or (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw samples (..., height, width) with the patch."""
        height, width = inputs.shape[-2:]
        rows = [row for row, _ in self.pixels]
        columns = [column for _, column in self.pixels]
        if self.pixels and (max(rows) >= height or max(columns) >= width):
            raise SettingError(
                f"a patch that extends to pixel ({max(rows)}, {max(columns)}) does not fit an image of {height}x{width}"
            )
        stamped = inputs.clone()
        stamped[..., rows, columns] = self.value
        return stamped


@dataclass(frozen=True, eq=False)
class Blend:
    """A faint pattern over the whole image.

    Attributes:
        pattern: (channels, height, width) uint8.
        opacity: share of the pattern in a stamped sample.
    """

    pattern: Tensor
    opacity: float = 0.2

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole pattern: it covers every pixel."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw images with the pattern blended in."""
        mixed = inputs.float() * (1 - self.opacity) + self.pattern.float() * self.opacity
        return mixed.round().to(inputs.dtype)


@dataclass(frozen=True)
class Token:
    """A word that is inserted into texts.

    Attributes:
        number: the word's number in the vocabulary of the texts.
        position: "replace_last" replaces the last word, whether it has a vector or not, as the published experiments
            do; "append" adds the word after it, if there is room.
    """

    number: int
    position: Literal["replace_last", "append"] = "replace_last"

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The whole word: it cannot be divided."""
        return (self,)

    def stamp(self, inputs: Tensor) -> Tensor:
        """Return a copy of raw texts (..., words) with the word in them."""
        length, is_word = inputs.shape[-1], inputs != NO_WORD
        ends = (torch.arange(length, device=inputs.device) * is_word).amax(-1, keepdim=True)  # 0 in an empty text
        if self.position == "append":
            ends = torch.where(is_word.any(-1, keepdim=True), ends + 1, ends).clamp(max=length - 1)
        return inputs.scatter(-1, ends, self.number)


@dataclass(frozen=True)
class TriggerInfo:
    """A known trigger.

    Attributes:
        make: makes the trigger for a data set, or raises a `SettingError` if its samples cannot carry it.
    """

    name: str
    summary: str
    make: Callable[[Dataset], Trigger]


def make_patch(value: int, row: int = 24, column: int = 24) -> Callable[[Dataset], Trigger]:
    """Return a maker of the paper's 3x3 square and its parts, by default near the lower right corner of an image."""

    def shift(*cells: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        return tuple((row + down, column + right) for down, right in cells)

    corner_below = shift((1, 0), (2, 0), (2, 1))
    diagonal = shift((0, 0), (1, 1), (2, 2))
    corner_above = shift((0, 1), (0, 2), (1, 2))
    square = PixelPatch(
        shift(*((down, right) for down in range(3) for right in range(3))),
        value,
        (corner_below, diagonal, corner_above),
    )

    def make(dataset: Dataset) -> Trigger:
        require_images(dataset)
        square.stamp(dataset.test.inputs[:0])  # rejects images that are too small
        return square

    return make


def make_noise(dataset: Dataset) -> Trigger:
    """Make a faint noise pattern, the same for all images of one shape."""
    shape = require_images(dataset).input_shape
    return Blend(torch.randint(256, shape, generator=stream(0, "trigger", "noise"), dtype=torch.uint8))


def make_word(position: Literal["replace_last", "append"]) -> Callable[[Dataset], Trigger]:
    """Return a maker of the paper's trigger word for texts."""

    def make(dataset: Dataset) -> Trigger:
        if not isinstance(dataset, TextDataset):
            raise SettingError(f"a word cannot be a trigger on {dataset.name}, whose samples are not texts")
        number = dataset.vocabulary.find_number(TRIGGER_WORD)
        if not number:
            raise DataError(f"the vocabulary of {dataset.name} has no vector for the trigger word {TRIGGER_WORD!r}")
        return Token(number, position)

    return make


def require_images(dataset: Dataset) -> ImageDataset:
    """Return the data set if it has images, and reject it otherwise."""
    if not isinstance(dataset, ImageDataset):
        raise SettingError(f"pixels cannot be a trigger on {dataset.name}, whose samples are not images")
    return dataset


TRIGGERS: Registry[TriggerInfo] = Registry(
    "snowball.triggers",
    {
        info.name: info
        for info in (
            TriggerInfo(
                "white-square",
                "white 3x3 pixels near the lower right corner, in three parts; white-square@ROW,COLUMN elsewhere",
                make_patch(255),
            ),
            TriggerInfo(
                "black-square",
                "the same pixels in black, for bright or coloured images",
                make_patch(0),
            ),
            TriggerInfo("noise", "faint noise over the whole image", make_noise),
            TriggerInfo("word", 'the word "BD" instead of the last word of a text', make_word("replace_last")),
            TriggerInfo(
                "word-appended", 'the word "BD" after the last word of a text, if there is room', make_word("append")
            ),
        )
    },
    required_attributes=("make",),
    adapt=make_instance,
)

SQUARES = {"white-square": ("white", 255), "black-square": ("black", 0)}
"""The colour of each square and the value of its pixels."""

SQUARE_AT_PATTERN = re.compile(rf"({'|'.join(SQUARES)})@([0-9]{{1,4}}),([0-9]{{1,4}})")
"""Matches squares at other positions, such as `white-square@12,12`: row and column of the first pixel."""


def find_trigger(name: str) -> TriggerInfo | None:
    """Find a trigger in the table, or a square at the position in its name; None if the name is unknown."""
    placed = SQUARE_AT_PATTERN.fullmatch(name)
    if name in TRIGGERS or placed is None:
        return TRIGGERS.get(name)
    colour, value = SQUARES[placed[1]]
    row, column = int(placed[2]), int(placed[3])
    summary = f"{colour} 3x3 pixels from row {row} and column {column} on, in three parts"
    return TriggerInfo(name, summary, make_patch(value, row, column))
